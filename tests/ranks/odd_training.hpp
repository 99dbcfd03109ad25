// Comparing small modules of tests/models/odd.py with their unsharded selves, over the ways to shard.
#pragma once
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/harness/training.hpp"

namespace fsdp2::testing {

/// An input of shape (2, 3, 8) that differs by step and rank.
inline at::Tensor odd_input(int64_t step, int64_t rank) {
  return fill({2, 3, 8}, 5 + step) + 0.125 * static_cast<double>(rank);
}

/// Loss: mean square of everything that the module returns for the input.
inline Recipe odd_recipe(int64_t steps = 4) {
  Recipe recipe;
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.forward({odd_input(step, rank)}));
  };
  recipe.steps = steps;
  return recipe;
}

/// full_shard with the root kept and not, shard_grad_op, no_shard.
inline std::vector<Sharding> every_strategy(Sharding sharding) {
  std::vector<Sharding> result(4, sharding);
  result[1].reshard = true;
  result[2].strategy = "shard_grad_op";
  result[3].strategy = "no_shard";
  return result;
}

inline Sharding units_of(std::vector<std::string> classes) {
  Sharding sharding;
  sharding.classes = std::move(classes);
  return sharding;
}

/// Trains the model under every strategy with these classes as units.
inline void expect_odd_trains(RankContext& context, const std::string& model, const std::vector<std::string>& classes,
                              const Recipe& recipe = odd_recipe(), const Tolerance& tolerance = {}) {
  const Reference reference = train_unsharded(load(context, model), recipe, context.world());
  for (const Sharding& sharding : every_strategy(units_of(classes))) {
    SCOPED_TRACE(sharding.strategy +
                 (std::holds_alternative<bool>(sharding.reshard) ? " with the root resharded" : ""));
    expect_trains_like(context, load(context, model), sharding, recipe, reference, tolerance);
  }
}

}  // namespace fsdp2::testing
