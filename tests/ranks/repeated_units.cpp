// Units that run twice, in a loop, not at all, inside each other, or by another path.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "plugin/script/bound_tree.hpp"
#include "registry/error.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

RANK_CASE(Behaviour_H7, side_by_side) {
  expect_odd_trains(context, "SideBySide", {"Layer"});
  expect_odd_trains(context, "SideBySide", {"Linear"});
}
RANK_CASE(Behaviour_H8, in_a_chain) {
  expect_odd_trains(context, "Chain", {"Layer"});
  expect_odd_trains(context, "Chain", {"Linear"});
}

Recipe with_number(const std::function<int64_t(int64_t step)>& number, int64_t steps) {
  Recipe recipe = odd_recipe(steps);
  recipe.loss = [number](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.forward({odd_input(step, rank), number(step)}));
  };
  return recipe;
}

RANK_CASE(RepeatedUnits, in_a_loop) {
  expect_odd_trains(context, "Loop", {"Layer"}, with_number([](int64_t step) { return (step * 2) % 5; }, 5));
}

/// Which unit runs is chosen by an input: a, b, neither, and in the end the one that never ran.
RANK_CASE(RepeatedUnits, chosen_by_an_input) {
  expect_odd_trains(context, "Chosen", {"Layer"}, with_number([](int64_t step) { return step % 3; }, 6));
  expect_odd_trains(context, "Chosen", {"Layer"}, with_number([](int64_t step) { return step; }, 4));
  // All in one unit.
  expect_odd_trains(context, "Chosen", {}, with_number([](int64_t step) { return step; }, 4));
}

/// A unit that does not run costs nothing and has no gradient, so that weight decay leaves it alone.
RANK_CASE_ON(Behaviour_H13, never_run, 2, 4) {
  auto module = load(context, "Chosen");
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, units_of({"Layer"}), communicator);
  const auto before = named_parameters(load(context, "Chosen"));
  torch::optim::AdamW optimizer(tensors_of(*sharded), torch::optim::AdamWOptions(0.1).weight_decay(0.5));
  for (int64_t step = 0; step < 3; ++step) {
    communicator->forget();
    optimizer.zero_grad();
    mean_square(module.forward({odd_input(step, context.rank()), int64_t{1}})).backward();
    EXPECT_EQ(communicator->count(Collective::kReduceScatter), 2);
    optimizer.step();
  }
  for (const auto& [name, tensor] : sharded->parameters()) {
    const bool ran = name.find("first.") == 0 || name.find("a.") == 0;
    EXPECT_EQ(tensor.grad().defined(), ran) << name;
  }
  sharded->detach();
  for (const auto& [name, tensor] : named_parameters(module)) {
    const bool ran = name.find("first.") == 0 || name.find("a.") == 0;
    EXPECT_EQ(tensor.equal(before.at(name)), !ran) << name;
  }
}

/// The host alone calls it: its parameters lie in the root, which is gathered for the call.
RANK_CASE(RepeatedUnits, called_by_the_host_alone) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    const at::Tensor x = odd_input(step, rank);
    const at::Tensor spare = module.attr("spare").toModule().forward({x}).toTensor();
    return mean_square(module.forward({x})) + mean_square(spare);
  };
  expect_odd_trains(context, "Uncalled", {"Layer"}, recipe);
  expect_odd_trains(context, "Uncalled", {"Linear"}, recipe);

  const Plan plan = plan_for(read_module_tree(load(context, "Uncalled")).tree, units_of({"Layer"}), context.world());
  ASSERT_EQ(plan.units.size(), 3U);
  for (const PlannedParameter& parameter : plan.units[2].parameters) {
    EXPECT_TRUE(parameter.name.starts_with("spare.")) << parameter.name;
  }
  EXPECT_NE(to_table(plan).find("note: no method of the model calls `spare`"), std::string::npos) << to_table(plan);
}

/// What runs is known only when it runs: all of them count as called.
RANK_CASE(RepeatedUnits, through_an_interface) {
  const auto k = [](int64_t step) { return (step * 2) % 3; };
  expect_odd_trains(context, "ThroughInterface", {"Layer"}, with_number(k, 4));
  const Plan plan =
      plan_for(read_module_tree(load(context, "ThroughInterface")).tree, units_of({"Layer"}), context.world());
  EXPECT_EQ(plan.units.size(), 6U);
}

/// Data that all ranks have alike.
RANK_CASE(RepeatedUnits, chosen_by_data) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.forward({odd_input(step, rank), fill({step}, step)}));
  };
  expect_odd_trains(context, "OnData", {"Layer"}, recipe);
}

RANK_CASE(RepeatedUnits, nested) {
  expect_odd_trains(context, "Nested", {"Outer", "Layer"});
  expect_odd_trains(context, "Nested", {"Outer", "Layer", "Linear"});
}

RANK_CASE(Behaviour_A16, one_object_by_two_paths) {
  expect_odd_trains(context, "OneObjectTwoPaths", {"Layer"});
  Sharding every;
  every.policy = WrapPolicy::kEvery;
  expect_trains_like_unsharded(context, "OneObjectTwoPaths", every, odd_recipe());
}

RANK_CASE(RepeatedUnits, every_module_a_unit) {
  Sharding every;
  every.policy = WrapPolicy::kEvery;
  for (const char* model :
       {"ThreeLayers", "ThreeLayers_traced", "Nested", "Containers", "ParentReads", "AttentionModel"}) {
    SCOPED_TRACE(model);
    expect_trains_like_unsharded(context, model, every, odd_recipe());
  }
}

/// Counts of PyTorch's own for three units: where units are resharded each call gathers; each unit reduces once. The
/// chain's unit is resharded between its two backwards in any case: one gather more.
RANK_CASE_ON(Behaviour_H8, counts_of_pytorch, 2, 4) {
  struct Case {
    std::string model;
    std::string strategy;
    int64_t in_forward;
    int64_t in_backward;
  };
  for (const auto& [model, strategy, in_forward, in_backward] :
       {Case{"SideBySide", "full_shard", 3, 2}, Case{"SideBySide", "shard_grad_op", 2, 0},
        Case{"Chain", "full_shard", 3, 3}, Case{"Chain", "shard_grad_op", 2, 1}}) {
    SCOPED_TRACE(model + " " + strategy);
    auto module = load(context, model);
    auto communicator = context.new_communicator();
    Sharding sharding = units_of({"Layer"});
    sharding.strategy = strategy;
    const auto sharded = shard(context, module, sharding, communicator);
    communicator->forget();
    const at::Tensor loss = mean_square(module.forward({odd_input(0, context.rank())}));
    EXPECT_EQ(communicator->count(Collective::kAllGather), in_forward);
    loss.backward();
    EXPECT_EQ(communicator->count(Collective::kAllGather), in_forward + in_backward);
    EXPECT_EQ(communicator->count(Collective::kReduceScatter), 2);
  }
}

/// What waits goes with the first backward of the chain's unit, what this pass gives with the second.
RANK_CASE(Behaviour_H9, in_a_chain_after_a_pass_without_sync) {
  const auto loss_of = [](torch::jit::Module& module, int64_t batch, int64_t rank) {
    return mean_square(module.forward({odd_input(batch, rank)}));
  };
  auto plain = load(context, "Chain");
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (loss_of(plain, batch, rank) / static_cast<double>(context.world())).backward();
    }
  }
  TensorsByName wanted;
  for (const auto& [name, tensor] : named_parameters(plain)) wanted[name] = tensor.grad();

  auto module = load(context, "Chain");
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, units_of({"Layer"}), communicator);
  sharded->set_gradient_sync("", true, false);
  loss_of(module, 0, context.rank()).backward();
  sharded->set_gradient_sync("", true, true);
  communicator->forget();
  loss_of(module, 1, context.rank()).backward();
  EXPECT_EQ(communicator->count(Collective::kAllGather), 6);
  EXPECT_EQ(communicator->count(Collective::kReduceScatter), 3);
  expect_gradients_equal(*sharded, wanted);
}

/// A layer three times, a frozen one between, and a use without gradients in the same forward.
RANK_CASE(Behaviour_H6, around_a_frozen_unit) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    auto a = module.attr("a").toModule();
    auto b = module.attr("b").toModule();
    for (const at::Tensor& parameter : b.parameters()) parameter.requires_grad_(false);
    const at::Tensor x = odd_input(step, rank);
    const at::Tensor between = b.forward({a.forward({x})}).toTensor();
    at::Tensor aside;
    {
      const at::NoGradGuard no_grad;
      aside = a.forward({x}).toTensor();
    }
    return mean_square(a.forward({a.forward({between}).toTensor() + aside}));
  };
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), recipe, context.world());
  for (const Sharding& sharding : every_strategy(units_of({"Layer"}))) {
    expect_trains_like(context, load(context, "ThreeLayers"), sharding, recipe, reference);
  }
}

/// Ranks could gather in different orders. A fork inside one unit is that unit's own business.
RANK_CASE(RepeatedUnits, in_a_fork) {
  auto module = load(context, "Forked");
  for (const char* units : {"Layer", "Linear"}) {
    try {
      shard(context, module, units_of({units}));
      ADD_FAILURE() << units << " was sharded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("torch.jit.fork"), std::string::npos) << error.what();
      EXPECT_TRUE(error.details().file.ends_with("odd.py")) << error.what();
      EXPECT_GT(error.details().line.value_or(0), 0);
      EXPECT_EQ(error.details().module, std::string(units) == "Layer" ? "a" : "a.up") << error.what();
    }
  }
  mean_square(module.forward({odd_input(0, 0)})).backward();
  expect_odd_trains(context, "Forked", {"Forked"});
}

}  // namespace
}  // namespace fsdp2::testing
