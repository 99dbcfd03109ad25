// Units whose inputs and outputs are tuples, lists, dictionaries, optionals.
#include <gtest/gtest.h>

#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

const std::vector<std::string> kUnits{"TupleUnit", "ListUnit", "DictUnit", "OptionalUnit", "NamedTupleUnit"};

RANK_CASE(Containers, between_units) {
  expect_odd_trains(context, "Containers", kUnits);
}
RANK_CASE(Containers, with_units_inside) {
  std::vector<std::string> classes = kUnits;
  classes.push_back("Layer");
  expect_odd_trains(context, "Containers", classes);
}

/// With reshard on, a container whose tensors are not found would leave a unit without weights in backward.
RANK_CASE_ON(Containers, every_unit_gathers_again_in_backward, 2, 4) {
  auto module = load(context, "Containers");
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, units_of(kUnits), communicator);
  for (int round = 0; round < 3; ++round) {
    communicator->forget();
    const at::Tensor loss = mean_square(module.forward({odd_input(0, context.rank())}));
    // The optional unit runs twice.
    EXPECT_EQ(communicator->count(Collective::kAllGather), 6);
    loss.backward();
    EXPECT_EQ(communicator->count(Collective::kReduceScatter), 5);
    EXPECT_GE(communicator->count(Collective::kAllGather), 11);
  }
}

RANK_CASE(Containers, dictionary_into_and_out_of_the_root) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    c10::Dict<std::string, at::Tensor> batch;
    batch.insert("x", odd_input(step, rank));
    batch.insert("y", odd_input(step + 3, rank));
    return module.forward({batch}).toGenericDict().at("loss").toTensor();
  };
  expect_odd_trains(context, "DictOutput", {"Layer"}, recipe);
  expect_odd_trains(context, "DictOutput", {}, recipe);
}

/// A loss that leaves one output, and with it a unit, without a gradient; then both, then the other.
RANK_CASE(Behaviour_H12, unused_output) {
  Recipe recipe = odd_recipe(5);
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    const auto outputs = module.forward({odd_input(step, rank)}).toTuple()->elements().vec();
    if (step % 3 == 0) return mean_square(outputs[0]);
    if (step % 3 == 1) return mean_square(outputs[0]) + mean_square(outputs[1]);
    return mean_square(outputs[1]);
  };
  expect_odd_trains(context, "TwoOutputs", {"Layer"}, recipe);
  // Both in one unit: part of its gradients is missing.
  expect_odd_trains(context, "TwoOutputs", {}, recipe);
}

}  // namespace
}  // namespace fsdp2::testing
