// An optimizer that the host made before sharding: its groups hold shards afterwards.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <fsdp2/optimizer.hpp>

#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

std::vector<std::pair<std::string, at::Tensor>> named_shards(const ShardedModule& sharded) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& [name, tensor] : sharded.parameters()) result.emplace_back(name, tensor);
  return result;
}

/// Two groups with options of their own: vectors are stepped faster than matrices.
std::unique_ptr<torch::optim::SGD> two_groups(const torch::jit::Module& module) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const auto& parameter : module.named_parameters()) {
    (parameter.value.dim() > 1 ? matrices : vectors).push_back(parameter.value);
  }
  auto optimizer = std::make_unique<torch::optim::SGD>(matrices, torch::optim::SGDOptions(0.02).momentum(0.9));
  torch::optim::OptimizerParamGroup group(vectors);
  group.set_options(std::make_unique<torch::optim::SGDOptions>(0.1));
  optimizer->add_param_group(group);
  return optimizer;
}

RANK_CASE_ON(OptimizerBinding, groups_options_and_training_stay, 2, 4) {
  auto plain = load(context, "lm");
  const auto plain_optimizer = two_groups(plain);
  auto module = load(context, "lm");
  const auto optimizer = two_groups(module);
  const size_t matrices = optimizer->param_groups()[0].params().size();
  fsdp2::OptimizerBinding binding(module, *optimizer);
  std::vector<LogLine> log;
  const auto sharded = shard(context, module, by_layer(language_models()[0]), nullptr, &log);
  EXPECT_TRUE(log.empty()) << "the originals are held elsewhere: " << log.front().text;
  binding.bind(named_shards(*sharded));
  EXPECT_EQ(optimizer->param_groups()[0].params().size(), matrices);
  for (int64_t step = 0; step < 4; ++step) {
    plain_optimizer->zero_grad();
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (next_token_loss(plain, step, rank) / static_cast<double>(context.world())).backward();
    }
    plain_optimizer->step();
    optimizer->zero_grad();
    next_token_loss(module, step, context.rank()).backward();
    optimizer->step();
  }
  sharded->detach();
  expect_parameters_equal(module, named_parameters(plain), {});
}

RANK_CASE(OptimizerBinding, ignored_parameters_stay_in_their_groups) {
  auto module = load(context, "lm");
  const auto optimizer = two_groups(module);
  fsdp2::OptimizerBinding binding(module, *optimizer);
  Sharding sharding = by_layer(language_models()[0]);
  sharding.ignored = {R"(layers\.0)"};
  const auto sharded = shard(context, module, sharding);
  binding.bind(named_shards(*sharded));
  std::set<const void*> held;
  for (const auto& group : optimizer->param_groups()) {
    for (const at::Tensor& tensor : group.params()) held.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : named_parameters(module)) {
    EXPECT_EQ(held.count(tensor.unsafeGetTensorImpl()), 1U) << name;
  }
}

RANK_CASE(OptimizerBinding, tied_once_and_strangers_stay) {
  auto module = load(context, "lm_tied");
  std::vector<at::Tensor> listed;
  for (const auto& parameter : module.named_parameters()) listed.push_back(parameter.value);
  std::set<void*> distinct;
  for (const at::Tensor& tensor : listed) distinct.insert(tensor.unsafeGetTensorImpl());
  ASSERT_LT(distinct.size(), listed.size());
  const at::Tensor stranger = at::ones({3}).requires_grad_(true);
  listed.push_back(stranger);
  torch::optim::SGD optimizer(listed, torch::optim::SGDOptions(0.1));
  fsdp2::OptimizerBinding binding(module, optimizer);
  const auto sharded = shard(context, module, by_layer({"lm_tied", "Block"}));
  binding.bind(named_shards(*sharded));
  const auto& bound = optimizer.param_groups()[0].params();
  ASSERT_EQ(bound.size(), distinct.size() + 1);
  EXPECT_TRUE(bound.back().is_same(stranger));
  std::set<void*> shards;
  for (const at::Tensor& tensor : tensors_of(*sharded)) shards.insert(tensor.unsafeGetTensorImpl());
  for (size_t i = 0; i + 1 < bound.size(); ++i) EXPECT_TRUE(shards.erase(bound[i].unsafeGetTensorImpl()) == 1) << i;
}

/// Moments of a rank's rows; of none on the last of four ranks, which has no row of 5 nor of 3.
RANK_CASE_ON(Behaviour_I15, state_has_the_size_of_shards, 2, 4) {
  auto module = load(context, "net3");
  Sharding sharding;
  sharding.layout = Layout::kPerParameter;
  const auto sharded = shard(context, module, sharding);
  torch::optim::AdamW optimizer(tensors_of(*sharded), torch::optim::AdamWOptions(1e-3));
  module.forward({at::ones({2, 4})}).toTensor().sum().backward();
  for (const auto& [name, shard] : sharded->parameters()) {
    ASSERT_TRUE(shard.grad().defined()) << name;
    EXPECT_EQ(shard.grad().sizes(), shard.sizes()) << name;
    EXPECT_EQ(shard.numel() == 0, context.rank() == 3) << name;
  }
  optimizer.step();
  for (const auto& [name, shard] : sharded->parameters()) {
    const auto& state =
        static_cast<const torch::optim::AdamWParamState&>(*optimizer.state().at(shard.unsafeGetTensorImpl()));
    EXPECT_EQ(state.exp_avg().sizes(), shard.sizes()) << name;
    EXPECT_EQ(state.exp_avg_sq().sizes(), shard.sizes()) << name;
  }
}

RANK_CASE(OptimizerBinding, state_is_refused_and_a_failure_changes_nothing) {
  auto module = load(context, "lm");
  const std::vector<at::Tensor> before = [&] {
    std::vector<at::Tensor> tensors;
    for (const auto& parameter : module.named_parameters()) tensors.push_back(parameter.value);
    return tensors;
  }();
  torch::optim::AdamW optimizer(before, torch::optim::AdamWOptions(1e-3));
  const auto is_as_before = [&] {
    const auto& now = optimizer.param_groups()[0].params();
    return std::equal(now.begin(), now.end(), before.begin(), before.end(),
                      [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  };
  { const fsdp2::OptimizerBinding binding(module, optimizer); }  // nothing was bound
  EXPECT_TRUE(is_as_before());
  {
    fsdp2::OptimizerBinding binding(module, optimizer);
    EXPECT_THROW(binding.bind({}), fsdp2::Exception);
  }
  EXPECT_TRUE(is_as_before());
  next_token_loss(module, 0, context.rank()).backward();
  optimizer.step();
  try {
    const fsdp2::OptimizerBinding binding(module, optimizer);
    ADD_FAILURE() << "state was accepted";
  } catch (const fsdp2::Exception& error) {
    EXPECT_EQ(error.code(), FSDP2_FAILED_PRECONDITION);
    EXPECT_FALSE(error.parameter.empty());
  }
  EXPECT_TRUE(is_as_before());
}

}  // namespace
}  // namespace fsdp2::testing
