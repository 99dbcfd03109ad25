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

/// The host calls a method of the root that is not forward.
RANK_CASE(Behaviour_B17, called_by_the_host) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.run_method("whole", odd_input(step, rank)));
  };
  expect_odd_trains(context, "CallsFeatures", {"Featured"}, recipe);
  expect_odd_trains(context, "CallsFeatures", {}, recipe);
}

/// The host calls a unit alone, after a step of the whole model: result and gradients are those of the plain module.
RANK_CASE(OtherMethods, unit_called_alone) {
  const auto plain = load(context, "ThreeLayers");
  auto plain_unit = plain.attr("b").toModule();
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  sharded->zero_gradients();
  const auto ranks = static_cast<double>(context.world());
  for (int64_t rank = 0; rank < context.world(); ++rank) {
    (mean_square(plain_unit.forward({odd_input(1, rank)})) / ranks).backward();
  }
  const at::Tensor x = odd_input(1, context.rank());
  const at::Tensor own = module.attr("b").toModule().forward({x}).toTensor();
  EXPECT_LE((own - plain_unit.forward({x}).toTensor()).abs().max().item<double>(), 1e-6);
  mean_square(own).backward();
  EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
  TensorsByName wanted;
  for (const auto& [name, tensor] : named_parameters(plain)) wanted[name] = tensor.grad();
  expect_gradients_equal(*sharded, wanted);
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
