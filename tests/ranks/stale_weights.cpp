// Weights that change while a unit is kept whole: the next forward must see them.
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <set>

#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm_tied", "Block"};

// AdamW makes full steps of rounding noise: small ones keep it below the tolerance, and a stale weight far above.
constexpr double kSmallRate = 2e-4;

at::Tensor output(torch::jit::Module& module, int64_t step, int64_t rank) {
  const at::NoGradGuard guard;
  return module.forward({input_ids(step, rank)}).toTensor().clone();
}

void expect_equal(const at::Tensor& own, const at::Tensor& wanted) {
  EXPECT_LE((own - wanted).abs().max().item<double>(), 2e-5);
}

/// Backward, a forward without gradients, the optimizer's step, a forward. LibTorch's SGD writes through `.data`, which
/// has a version counter of its own; its AdamW writes the parameter itself.
void step_after_a_forward(RankContext& context, const Sharding& sharding, Optimizer kind, double rate) {
  SCOPED_TRACE(kind == Optimizer::kAdamW ? "AdamW" : "SGD");
  auto reference = load(context, kModel.file);
  std::vector<at::Tensor> parameters;
  std::set<void*> seen;
  for (const auto& parameter : reference.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
  }
  const auto plain = make_optimizer(kind, parameters, rate);
  auto module = load(context, kModel.file);
  const auto sharded = shard(context, module, sharding);
  const auto optimizer = make_optimizer(kind, tensors_of(*sharded), rate);
  for (int64_t step = 0; step < 3; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    at::Tensor before;
    at::Tensor after;
    {
      const torch::jit::GraphOptimizerEnabledGuard as_written(false);
      plain->zero_grad();
      for (int64_t rank = 0; rank < context.world(); ++rank) {
        (next_token_loss(reference, step, rank) / static_cast<double>(context.world())).backward();
      }
      before = output(reference, 7, context.rank());
      plain->step();
      after = output(reference, 7, context.rank());
    }
    ASSERT_GT((after - before).abs().max().item<double>(), 1e-3) << "the step is too small to notice stale weights";

    optimizer->zero_grad();
    next_token_loss(module, step, context.rank()).backward();
    expect_equal(output(module, 7, context.rank()), before);
    optimizer->step();
    expect_equal(output(module, 7, context.rank()), after);
    expect_equal(output(module, 7, context.rank()), after);
  }
}

/// A forward without gradients, `write` on every shard, a forward.
void write_after_a_forward(RankContext& context, const std::string& strategy,
                           const std::function<void(const at::Tensor& shard, const at::Tensor& value)>& write,
                           bool says_so) {
  auto reference = load(context, kModel.file);
  auto module = load(context, kModel.file);
  const auto sharded = shard(context, module, by_layer(kModel, strategy));
  for (double factor : {0.9, 1.2}) {
    const at::Tensor before = output(reference, 0, context.rank());
    {
      const at::NoGradGuard guard;
      std::set<void*> seen;
      for (const auto& parameter : reference.parameters()) {
        if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameter.mul_(factor);
      }
    }
    expect_equal(output(module, 0, context.rank()), before);
    {
      const at::NoGradGuard guard;
      for (const at::Tensor& tensor : tensors_of(*sharded)) write(tensor, tensor.detach() * factor);
    }
    if (says_so) sharded->mark_written();
    expect_equal(output(module, 0, context.rank()), output(reference, 0, context.rank()));
  }
}

void copy(const at::Tensor& shard, const at::Tensor& value) {
  shard.copy_(value);
}
/// Through `.data`, which has a version counter of its own: the host says that it wrote.
void copy_unseen(const at::Tensor& shard, const at::Tensor& value) {
  shard.variable_data().copy_(value);
}

std::vector<at::Tensor> every_parameter(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : named_parameters(module)) parameters.push_back(tensor);
  return parameters;
}

/// Gathered before there were gradients, whole ever since; the optimizer has stepped unseen and dropped them.
RANK_CASE_ON(StaleWeights, step_and_zero_where_units_stay_whole_after_backward, 2, 4) {
  for (const std::string strategy : {"full_shard", "shard_grad_op"}) {
    auto plain = load(context, "lm");
    const auto plain_optimizer = make_optimizer(Optimizer::kSgd, every_parameter(plain), 0.05);
    auto module = load(context, "lm");
    const auto sharded = shard(context, module, by_layer({"lm", "Block"}, strategy));
    sharded->set_reshard_after_backward("", /*recurse=*/true, false);
    const auto optimizer = make_optimizer(Optimizer::kSgd, tensors_of(*sharded), 0.05);
    for (int64_t step = 0; step < 3; ++step) {
      plain_optimizer->zero_grad();
      for (int64_t rank = 0; rank < context.world(); ++rank) {
        const at::Tensor wanted = next_token_loss(plain, step, rank);
        (wanted / static_cast<double>(context.world())).backward();
        if (rank != context.rank()) continue;
        const at::Tensor loss = next_token_loss(module, step, rank);
        EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 2e-5) << strategy << ", step " << step;
        loss.backward();
      }
      plain_optimizer->step();
      optimizer->step();
      optimizer->zero_grad();
    }
  }
}

RANK_CASE(StaleWeights, step_of_sgd_after_a_forward_full_shard) {
  step_after_a_forward(context, by_layer(kModel, "full_shard"), Optimizer::kSgd, 0.05);
  step_after_a_forward(context, by_layer(kModel, "full_shard"), Optimizer::kMomentum, 0.05);
}
RANK_CASE(StaleWeights, step_of_adamw_after_a_forward_full_shard) {
  step_after_a_forward(context, by_layer(kModel, "full_shard"), Optimizer::kAdamW, kSmallRate);
}
RANK_CASE(StaleWeights, step_of_sgd_after_a_forward_shard_grad_op) {
  step_after_a_forward(context, by_layer(kModel, "shard_grad_op"), Optimizer::kSgd, 0.05);
  step_after_a_forward(context, by_layer(kModel, "shard_grad_op"), Optimizer::kMomentum, 0.05);
}
RANK_CASE(StaleWeights, step_of_adamw_after_a_forward_shard_grad_op) {
  step_after_a_forward(context, by_layer(kModel, "shard_grad_op"), Optimizer::kAdamW, kSmallRate);
}
RANK_CASE(StaleWeights, step_after_a_forward_per_parameter) {
  Sharding sharding = by_layer(kModel, "shard_grad_op");
  sharding.layout = Layout::kPerParameter;
  step_after_a_forward(context, sharding, Optimizer::kMomentum, 0.05);
}
RANK_CASE_ON(StaleWeights, step_after_a_forward_that_reshards_to_a_block, 4) {
  Sharding sharding = by_layer(kModel);
  sharding.reshard = int64_t{2};
  step_after_a_forward(context, sharding, Optimizer::kSgd, 0.05);
  step_after_a_forward(context, sharding, Optimizer::kAdamW, kSmallRate);
}
RANK_CASE(StaleWeights, step_of_sgd_after_a_forward_no_shard) {
  step_after_a_forward(context, by_layer(kModel, "no_shard"), Optimizer::kSgd, 0.05);
  step_after_a_forward(context, by_layer(kModel, "no_shard"), Optimizer::kMomentum, 0.05);
}
RANK_CASE(StaleWeights, step_of_adamw_after_a_forward_no_shard) {
  step_after_a_forward(context, by_layer(kModel, "no_shard"), Optimizer::kAdamW, kSmallRate);
}
RANK_CASE(StaleWeights, copy_after_a_forward_full_shard) {
  write_after_a_forward(context, "full_shard", copy, false);
}
RANK_CASE(StaleWeights, copy_after_a_forward_shard_grad_op) {
  write_after_a_forward(context, "shard_grad_op", copy, false);
}
RANK_CASE(StaleWeights, copy_after_a_forward_no_shard) {
  write_after_a_forward(context, "no_shard", copy, false);
}
RANK_CASE(StaleWeights, unseen_copy_full_shard) {
  write_after_a_forward(context, "full_shard", copy_unseen, true);
}
RANK_CASE(StaleWeights, unseen_copy_shard_grad_op) {
  write_after_a_forward(context, "shard_grad_op", copy_unseen, true);
}
RANK_CASE(StaleWeights, unseen_copy_no_shard) {
  write_after_a_forward(context, "no_shard", copy_unseen, true);
}

/// All ranks write, with other values: what counts is that a shard was written, not what.
RANK_CASE_ON(StaleWeights, values_change_on_one_rank_only, 2, 4) {
  auto reference = load(context, kModel.file);
  auto module = load(context, kModel.file);
  const auto sharded = shard(context, module, by_layer(kModel, "shard_grad_op"));
  output(module, 0, context.rank());
  // Written on every rank, as an optimizer does: ranks must agree on whether a unit gathers again.
  const at::NoGradGuard guard;
  for (const auto& [name, tensor] : sharded->parameters()) {
    if (name.find("norm") != std::string::npos) tensor.mul_(context.rank() == 0 ? 2.0 : 1.0);
  }
  // The same change in the whole parameters, at the elements that rank 0 owns.
  TensorsByName full = named_parameters(reference);
  for (const PlannedUnit& unit : sharded->plan().units) {
    for (const PlannedParameter& parameter : unit.parameters) {
      if (parameter.name.find("norm") == std::string::npos) continue;
      const ShardRange range = shard_range(unit, parameter, 0);
      full.at(parameter.name).view({-1}).slice(0, range.begin, range.end).mul_(2.0);
    }
  }
  expect_equal(output(module, 0, context.rank()), output(reference, 0, context.rank()));
}

/// A kept unit that nobody wrote is not gathered a second time.
RANK_CASE_ON(StaleWeights, untouched_weights_stay, 2, 4) {
  auto module = load(context, kModel.file);
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, by_layer(kModel, "shard_grad_op"), communicator);
  output(module, 0, context.rank());
  communicator->forget();
  output(module, 1, context.rank());
  EXPECT_EQ(communicator->records().size(), 0U);
  EXPECT_EQ(sharded->statistics().stale_gathers, 0);
}

/// A host that calls units one by one, no root around them: what the call of `a` gathers ahead for `b` is old after the
/// step, which SGD takes unseen.
RANK_CASE(StaleWeights, step_between_calls_of_units) {
  auto plain = load(context, "ThreeLayers");
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, [] {
    Sharding sharding;
    sharding.classes = {"Layer"};
    return sharding;
  }());
  const at::Tensor x = fill({4, 8}, 1);
  const auto part = [](const torch::jit::Module& whole, const char* name, const at::Tensor& input) {
    return whole.attr(name).toModule().forward({input}).toTensor();
  };
  const auto run = [&](const torch::jit::Module& whole, torch::optim::Optimizer& optimizer) {
    part(whole, "c", part(whole, "b", part(whole, "a", x))).pow(2).mean().backward();
    const at::NoGradGuard guard;
    const at::Tensor between = part(whole, "a", x);
    optimizer.step();
    return part(whole, "b", between);
  };
  const auto optimizer = make_optimizer(Optimizer::kSgd, tensors_of(*sharded), 0.5);
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : plain.parameters()) all.push_back(parameter);
  const auto plain_optimizer = make_optimizer(Optimizer::kSgd, all, 0.5);
  for (int round = 0; round < 2; ++round) expect_equal(run(module, *optimizer), run(plain, *plain_optimizer));
}

}  // namespace
}  // namespace fsdp2::testing
