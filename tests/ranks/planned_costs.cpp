// What a plan says a step costs (`fsdp2 plan`), against what ranks count and hold.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <set>

#include "plugin/script/bound_tree.hpp"
#include "registry/rank_memory.hpp"
#include "registry/step_traffic.hpp"
#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm_tied", "Block"};

void expect_counted(const CollectiveTraffic& planned, int64_t calls, int64_t bytes) {
  EXPECT_EQ(planned.calls, calls);
  EXPECT_EQ(planned.bytes, bytes);
}

/// Bytes of all memory that the tensors lie in, each once.
int64_t memory_of(const std::vector<at::Tensor>& tensors) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    bytes += static_cast<int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

int64_t optimizer_state(torch::optim::Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const auto& [key, state] : optimizer.state()) {
    const auto& moments = static_cast<const torch::optim::AdamWParamState&>(*state);
    bytes += static_cast<int64_t>(moments.exp_avg().nbytes() + moments.exp_avg_sq().nbytes());
  }
  return bytes;
}

/// Bytes of collectives, and memory of parameters, gradients and optimizer, to the byte.
void expect_planned_costs(RankContext& context, const std::string& model, const Sharding& sharding,
                          const std::function<at::Tensor(torch::jit::Module&)>& loss) {
  auto module = load(context, model);
  const ModuleTree tree = read_module_tree(module).tree;
  const auto sharded = shard(context, module, sharding);
  const auto optimizer = make_optimizer(Optimizer::kAdamW, tensors_of(*sharded), 1e-4);
  const StepTraffic traffic = step_traffic(sharded->plan(), tree);
  const RankMemory memory = rank_memory(sharded->plan(), *find_optimizer_state("adamw"));
  for (int64_t step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    sharded->reset_statistics();
    loss(module).backward();
    const Statistics counted = sharded->statistics();
    expect_counted(traffic.all_gather, counted.all_gathers, counted.all_gather_bytes);
    expect_counted(traffic.reduce_scatter, counted.reduce_scatters, counted.reduce_scatter_bytes);
    expect_counted(traffic.all_reduce, counted.all_reduces, counted.all_reduce_bytes);
    optimizer->step();
  }
  EXPECT_EQ(memory.parameters, sharded->statistics().shard_bytes);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& tensor : tensors_of(*sharded)) gradients.push_back(tensor.grad());
  EXPECT_EQ(memory.gradients, memory_of(gradients));
  const auto world = static_cast<size_t>(context.world());
  std::vector<double> state(world, 0);
  state[static_cast<size_t>(context.rank())] = static_cast<double>(optimizer_state(*optimizer));
  double most = 0;
  for (double& bytes : state) most = std::max(most, context.sum(bytes));
  EXPECT_EQ(static_cast<double>(memory.optimizer), most);
}

at::Tensor language_loss(torch::jit::Module& module) {
  return next_token_loss(module, 0, 0);
}

Sharding with(const std::string& strategy, ReshardAfterForward reshard = ReshardAuto{}) {
  Sharding sharding = by_layer(kModel, strategy);
  sharding.reshard = reshard;
  return sharding;
}

RANK_CASE_ON(PlannedCosts, one_dimension, 2, 4) {
  std::vector<Sharding> shardings{with("full_shard"), with("full_shard", true), with("shard_grad_op"),
                                  with("no_shard")};
  shardings.push_back(with("full_shard"));
  shardings.back().layout = Layout::kPerParameter;
  shardings.push_back(with("full_shard"));
  shardings.back().precision.param = DType::kBFloat16;
  shardings.back().precision.reduce = DType::kFloat32;
  for (const Sharding& sharding : shardings) {
    SCOPED_TRACE(sharding.strategy + " " + std::string(name_of(sharding.layout)));
    expect_planned_costs(context, kModel.file, sharding, language_loss);
  }
}

RANK_CASE_ON(PlannedCosts, two_dimensions_and_blocks, 4) {
  std::vector<Sharding> shardings{with("hybrid_shard"), with("hybrid_shard_zero2"), with("full_shard", int64_t{2})};
  for (Sharding& sharding : shardings) {
    if (sharding.strategy != "full_shard") sharding.mesh = {2, 2};
    SCOPED_TRACE(sharding.strategy);
    expect_planned_costs(context, kModel.file, sharding, language_loss);
  }
}

RANK_CASE_ON(PlannedCosts, nested_units, 2, 4) {
  expect_planned_costs(context, "Nested", units_of({"Outer", "Layer"}),
                       [](torch::jit::Module& module) { return mean_square(module.forward({odd_input(0, 0)})); });
}

/// A frozen block among trainable ones, and a frozen model with a head that trains.
RANK_CASE_ON(PlannedCosts, frozen_parameters, 2, 4) {
  for (const bool all_but_head : {false, true}) {
    auto module = load(context, "lm");
    for (const auto& parameter : module.named_parameters()) {
      const bool is_first = parameter.name.find("blocks.0.") != std::string::npos;
      const bool is_head = parameter.name.find("head") != std::string::npos;
      if (all_but_head ? !is_head : is_first) parameter.value.requires_grad_(false);
    }
    const ModuleTree tree = read_module_tree(module).tree;
    const auto sharded = shard(context, module, by_layer({"lm", "Block"}));
    const StepTraffic traffic = step_traffic(sharded->plan(), tree);
    sharded->reset_statistics();
    language_loss(module).backward();
    const Statistics counted = sharded->statistics();
    SCOPED_TRACE(all_but_head);
    expect_counted(traffic.all_gather, counted.all_gathers, counted.all_gather_bytes);
    expect_counted(traffic.reduce_scatter, counted.reduce_scatters, counted.reduce_scatter_bytes);
  }
}

}  // namespace
}  // namespace fsdp2::testing
