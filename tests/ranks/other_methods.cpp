// Methods other than forward, called by the parent or by the host.
#include <gtest/gtest.h>

#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

/// The root's forward calls `features` of its unit: right, as it would be without us.
RANK_CASE(Behaviour_B17, called_by_the_parent) {
  expect_odd_trains(context, "CallsFeatures", {"Featured"});
  expect_odd_trains(context, "CallsFeatures", {"Linear"});
}

/// The host calls a method of the root that is not forward: right, or refused by name, never computed on shards.
RANK_CASE(Behaviour_B17, called_by_the_host) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.run_method("whole", odd_input(step, rank)));
  };
  std::string refusal;
  {
    auto module = load(context, "CallsFeatures");
    const auto sharded = shard(context, module, units_of({"Featured"}));
    try {
      recipe.loss(module, 0, context.rank());
    } catch (const std::exception& error) {
      refusal = error.what();
    }
  }
  if (!refusal.empty()) {
    EXPECT_NE(refusal.find("whole"), std::string::npos) << refusal;
    return;
  }
  expect_odd_trains(context, "CallsFeatures", {"Featured"}, recipe);
  expect_odd_trains(context, "CallsFeatures", {}, recipe);
}

/// The host calls a unit alone: right, or refused with the unit's name.
RANK_CASE(OtherMethods, unit_called_alone) {
  const auto plain = load(context, "ThreeLayers");
  const at::Tensor x = odd_input(0, context.rank());
  const at::Tensor wanted = plain.attr("b").toModule().forward({x}).toTensor();
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  // After a step of the whole model, so that nothing is being run for the first time.
  mean_square(module.forward({x})).backward();
  try {
    const at::Tensor own = module.attr("b").toModule().forward({x}).toTensor();
    EXPECT_LE((own - wanted).abs().max().item<double>(), 1e-6);
    mean_square(own).backward();
    EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("`b`"), std::string::npos) << error.what();
  }
}

/// A part of a unit, called by the host outside its unit's window, meets shards: no result to rely on, but no harm
/// done.
RANK_CASE_ON(OtherMethods, part_of_a_unit_called_alone, 2, 4) {
  auto module = load(context, "ThreeLayers");
  auto plain = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  const at::Tensor x = odd_input(0, context.rank());
  const at::NoGradGuard guard;
  const at::Tensor wanted = plain.forward({x}).toTensor();
  for (int round = 0; round < 3; ++round) {
    try {
      module.attr("b").toModule().attr("up").toModule().forward({x});
    } catch (const std::exception&) {
      // LibTorch's own words about shapes that do not fit.
    }
    EXPECT_LE((module.forward({x}).toTensor() - wanted).abs().max().item<double>(), 1e-6);
  }
}

}  // namespace
}  // namespace fsdp2::testing
