// Results that leave a unit by other ways than its outputs: backward must come back to the unit all the same.
#include <gtest/gtest.h>

#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

RANK_CASE(Escapes, through_an_attribute) {
  expect_odd_trains(context, "ReadsAttributes", {"ThroughAttribute"});
  expect_odd_trains(context, "ReadsAttributes", {"ThroughAttribute", "Layer"});
}

/// The host reads it after forward.
RANK_CASE(Escapes, through_an_attribute_of_the_root) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    const at::Tensor loss = mean_square(module.forward({odd_input(step, rank)}));
    return loss + module.attr("first").toModule().attr("extra").toTensor();
  };
  expect_odd_trains(context, "ReadsAttributes", {}, recipe);
  expect_odd_trains(context, "ReadsAttributes", {"Linear"}, recipe);
}

RANK_CASE(Escapes, through_a_list_in_an_attribute) {
  expect_odd_trains(context, "ReadsListAttributes", {"ThroughListAttribute"});
}
RANK_CASE(Escapes, through_a_list) {
  expect_odd_trains(context, "ReadsList", {"ThroughList"});
  expect_odd_trains(context, "ReadsList", {"ThroughList", "Layer"});
}
RANK_CASE(Escapes, through_a_dictionary) {
  expect_odd_trains(context, "ReadsDict", {"ThroughDict"});
}
/// Parameters themselves, and views of them, that the caller uses when the unit is resharded.
RANK_CASE(Escapes, parameters) {
  expect_odd_trains(context, "TakesParameters", {"GivesParameters"});
  expect_trains_like_unsharded(context, "TakesParameters", {}, odd_recipe());
}
RANK_CASE(Escapes, through_an_object) {
  expect_odd_trains(context, "Boxes", {"ReturnsBox", "TakesBox"});
  expect_odd_trains(context, "Boxes", {"ReturnsBox", "TakesBox", "Layer"});
}

}  // namespace
}  // namespace fsdp2::testing
