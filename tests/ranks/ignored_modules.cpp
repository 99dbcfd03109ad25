// `ignored_modules`: parameters that stay whole and are the host's own.
#include <gtest/gtest.h>

#include <torch/csrc/jit/serialization/import.h>

#include <string_view>

#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

constexpr std::string_view kIgnored = "outers.1.";

Sharding ignoring() {
  Sharding sharding = units_of({"Outer", "Layer"});
  sharding.ignored = {R"(outers\.1)"};
  return sharding;
}

TensorsByName ignored_of(const torch::jit::Module& module) {
  TensorsByName tensors;
  for (const auto& [name, tensor] : named_parameters(module)) {
    if (name.starts_with(kIgnored)) tensors[name] = tensor;
  }
  return tensors;
}

/// With the host's own average of their gradients.
RANK_CASE_ON(Behaviour_H19, ignored_modules_are_the_hosts_own, 1, 2, 4) {
  const Recipe recipe = odd_recipe(3);
  const Reference reference = train_unsharded(load(context, "Nested"), recipe, context.world());
  for (const Sharding& sharding : every_strategy(ignoring())) {
    SCOPED_TRACE(sharding.strategy);
    auto module = load(context, "Nested");
    const TensorsByName whole = ignored_of(module);
    const auto sharded = shard(context, module, sharding);
    for (const PlannedUnit& unit : sharded->plan().units) EXPECT_NE(unit.path + ".", kIgnored);
    std::vector<at::Tensor> tensors = tensors_of(*sharded);
    for (const NamedTensor& parameter : sharded->parameters()) EXPECT_FALSE(parameter.name.starts_with(kIgnored));
    for (const auto& [name, tensor] : ignored_of(module)) {
      EXPECT_TRUE(tensor.is_same(whole.at(name))) << name;
      tensors.push_back(tensor);
    }
    EXPECT_EQ(whole.size() + sharded->parameters().size(), reference.parameters.size());
    const auto communicator = context.new_communicator();
    const auto optimizer = make_optimizer(recipe.optimizer, tensors, recipe.rate);
    for (int64_t step = 0; step < recipe.steps; ++step) {
      optimizer->zero_grad();
      const at::Tensor loss = recipe.loss(module, step, context.rank());
      const double wanted = reference.losses[static_cast<size_t>(step)][static_cast<size_t>(context.rank())];
      EXPECT_NEAR(loss.item<double>(), wanted, 2e-5);
      loss.backward();
      for (const auto& [name, tensor] : whole) {
        communicator->all_reduce(tensor.grad(), static_cast<double>(context.world()))->wait();
      }
      optimizer->step();
    }
    sharded->detach();
    expect_parameters_equal(module, reference.parameters, {});
  }
}

/// Each rank may hold others; one that asks for rank 0's values gets them for these, too.
RANK_CASE(Behaviour_H19, ranks_may_differ_in_them) {
  for (const LoadMode mode : {LoadMode::kSharded, LoadMode::kBroadcast}) {
    auto module = load(context, "Nested");
    TensorsByName wanted;
    {
      const at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : ignored_of(module)) {
        wanted[name] = tensor.clone();
        at::Tensor(tensor).add_(static_cast<double>(context.rank()));
        if (mode == LoadMode::kSharded) wanted[name].copy_(tensor);
      }
    }
    Sharding sharding = ignoring();
    sharding.load_mode = mode;
    const auto sharded = shard(context, module, sharding);
    for (const auto& [name, tensor] : ignored_of(module)) EXPECT_TRUE(tensor.equal(wanted.at(name))) << name;
  }
}

RANK_CASE(Behaviour_H19, exported_and_loaded_with_the_others) {
  auto module = load(context, "Nested");
  const auto sharded = shard(context, module, ignoring());
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : ignored_of(module)) at::Tensor(tensor).add_(1);
  }
  const std::string source = context.model_path("Nested");
  const std::string target = context.scratch_path("exported");
  sharded->export_to(source, target);
  context.barrier();
  const TensorsByName exported = named_parameters(torch::jit::load(target));
  for (const auto& [name, tensor] : ignored_of(module)) EXPECT_TRUE(tensor.equal(exported.at(name))) << name;
  sharded->load_from(source);
  const TensorsByName original = named_parameters(torch::jit::load(source));
  for (const auto& [name, tensor] : ignored_of(module)) EXPECT_TRUE(tensor.equal(original.at(name))) << name;
}

}  // namespace
}  // namespace fsdp2::testing
