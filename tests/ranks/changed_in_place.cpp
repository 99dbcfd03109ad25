// Tensors that change in place where they enter or leave a unit.
#include <gtest/gtest.h>

#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

RANK_CASE(ChangedInPlace, input_by_the_unit) {
  expect_odd_trains(context, "ReluOfLinear", {"ReluFirst", "Linear"});
}
RANK_CASE(ChangedInPlace, input_that_the_caller_reads_again) {
  expect_odd_trains(context, "ReluReadAgain", {"ReluFirst", "Linear"});
  expect_odd_trains(context, "ReluReadAgain", {"ReluFirst"});
}

RANK_CASE(ChangedInPlace, input_by_a_unit_that_returns_nothing) {
  expect_odd_trains(context, "ReturnsNothing", {"AddsInto"});
}

RANK_CASE(ChangedInPlace, input_that_is_a_view) {
  expect_odd_trains(context, "ReluOfViewNotRead", {"ReluFirst", "Linear"});
  expect_odd_trains(context, "ReluOfViewNotRead", {"ReluFirst"});
}

RANK_CASE(ChangedInPlace, input_that_is_a_view_of_something_read_again) {
  Recipe recipe = odd_recipe(3);
  recipe.rate = 1e-4;  // the loss is a large sum
  Tolerance tolerance;
  tolerance.loss = 2e-4;
  tolerance.parameter = 2e-5;
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return module.forward({odd_input(step, rank)}).toTensor();
  };
  expect_odd_trains(context, "ReluOfView", {"ReluFirst", "Linear"}, recipe, tolerance);
  expect_odd_trains(context, "ReluOfView", {"ReluFirst"}, recipe, tolerance);
}

RANK_CASE(ChangedInPlace, input_without_a_gradient) {
  expect_odd_trains(context, "WritesBuffer", {"AddsToBuffer"});
}

/// A leaf that needs a gradient may not be changed in place, with or without us.
RANK_CASE(ChangedInPlace, leaf_input_is_refused_as_without_us) {
  auto plain = load(context, "ReluOfLinear").attr("unit").toModule();
  const at::Tensor leaf = fill({2, 8}, 5).requires_grad_(true);
  EXPECT_ANY_THROW(plain.forward({leaf}));
  auto module = load(context, "ReluOfLinear").attr("unit").toModule();
  const auto sharded = shard(context, module, units_of({"ReluFirst"}));
  EXPECT_ANY_THROW(module.forward({leaf}));
  const at::Tensor good = fill({2, 8}, 5).requires_grad_(true);
  mean_square(module.forward({good * 1.0})).backward();
  EXPECT_TRUE(good.grad().defined());
}

void output_changed(RankContext& context, const std::string& model, int64_t kind) {
  Recipe recipe = odd_recipe();
  recipe.loss = [kind](torch::jit::Module& module, int64_t step, int64_t rank) {
    if (kind < 0) return mean_square(module.forward({odd_input(step, rank)}));
    return mean_square(module.forward({odd_input(step, rank), kind}));
  };
  expect_odd_trains(context, model, {"Layer"}, recipe);
  if (model == "ViewsChanged") expect_odd_trains(context, model, {"ReturnsViews", "Layer"}, recipe);
}

RANK_CASE(ChangedInPlace, output_by_add) {
  output_changed(context, "OutputChanged", 0);
}
RANK_CASE(ChangedInPlace, output_by_product) {
  output_changed(context, "OutputChanged", 1);
}
RANK_CASE(ChangedInPlace, row_of_the_output) {
  output_changed(context, "OutputChanged", 2);
}
RANK_CASE(ChangedInPlace, transposed_output) {
  output_changed(context, "OutputChanged", 3);
}
RANK_CASE(ChangedInPlace, slice_of_the_output) {
  output_changed(context, "OutputChanged", 4);
}
RANK_CASE(ChangedInPlace, reshaped_output) {
  output_changed(context, "OutputChanged", 5);
}
RANK_CASE(ChangedInPlace, detached_output) {
  output_changed(context, "OutputChanged", 6);
}
RANK_CASE(ChangedInPlace, output_with_another_shape) {
  output_changed(context, "OutputChanged", 7);
}
RANK_CASE(ChangedInPlace, one_of_several_views) {
  output_changed(context, "ViewsChanged", -1);
}
RANK_CASE(ChangedInPlace, output_read_before_and_after) {
  output_changed(context, "ReadsOutputTwice", -1);
}

/// The host changes the root's output in place before its loss.
RANK_CASE(ChangedInPlace, output_of_the_root_by_the_host) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    at::Tensor y = module.forward({odd_input(step, rank)}).toTensor();
    y.add_(1.0);
    y.view({-1}).mul_(0.5);
    return y.pow(2).mean();
  };
  expect_odd_trains(context, "ThreeLayers", {"Layer"}, recipe);
  expect_odd_trains(context, "ThreeLayers", {}, recipe);
}

}  // namespace
}  // namespace fsdp2::testing
