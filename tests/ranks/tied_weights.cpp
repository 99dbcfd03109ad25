// Reported faults with tied weights: stepped twice, and rows of the last rank that never change.
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/optim/sgd.h>

#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/harness/training.hpp"

namespace fsdp2::testing {
namespace {

Sharding units_of(std::vector<std::string> classes) {
  Sharding sharding;
  sharding.classes = std::move(classes);
  return sharding;
}

Sharding with(Sharding sharding, ReshardAfterForward reshard) {
  sharding.reshard = reshard;
  return sharding;
}

Sharding per_parameter(Sharding sharding, bool force_collectives = false) {
  sharding.layout = Layout::kPerParameter;
  sharding.force_collectives = force_collectives;
  return sharding;
}

/// Every slot of a tied parameter returns one tensor.
void expect_tied(const torch::jit::Module& module, const std::string& one, const std::string& other) {
  const TensorsByName parameters = named_parameters(module);
  EXPECT_EQ(parameters.at(one).unsafeGetTensorImpl(), parameters.at(other).unsafeGetTensorImpl());
}

void tied_pair(RankContext& context, const Sharding& sharding) {
  static const std::map<int64_t, std::vector<std::vector<double>>> kLosses{
      {1, {{0.033419, 0.029407, 0.025976, 0.023031}}},
      {2, {{0.033419, 0.029839, 0.026794, 0.024187}, {0.023331, 0.019942, 0.017150, 0.014834}}}};
  static const std::map<int64_t, std::pair<double, double>> kSums{{1, {-0.347946, -0.029735}},
                                                                  {2, {-0.348492, -0.045594}}};
  auto module = load(context, "tied_pair");
  const auto sharded = shard(context, module, sharding);
  const auto parameters = tensors_of(*sharded);
  ASSERT_EQ(parameters.size(), 2U) << "a tied tensor must reach the optimizer once";
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1));
  const at::Tensor x = fill({3, 4}, 5) + static_cast<double>(context.rank());
  for (size_t step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = module.forward({x}).toTensor().pow(2).mean();
    EXPECT_NEAR(loss.item<double>(), kLosses.at(context.world())[static_cast<size_t>(context.rank())][step], 2e-5);
    loss.backward();
    optimizer.step();
    expect_tied(module, "n.weight", "m.weight");
    expect_tied(module, "n.bias", "m.bias");
  }
  sharded->detach();
  expect_tied(module, "n.weight", "m.weight");
  const TensorsByName values = named_parameters(module);
  EXPECT_NEAR(values.at("n.weight").sum().item<double>(), kSums.at(context.world()).first, 2e-5);
  EXPECT_NEAR(values.at("n.bias").sum().item<double>(), kSums.at(context.world()).second, 2e-5);
  module.save(context.scratch_path("tied" + std::to_string(context.rank())));
  const auto loaded = torch::jit::load(context.scratch_path("tied" + std::to_string(context.rank())));
  expect_tied(loaded, "n.weight", "m.weight");
  expect_tied(loaded, "n.bias", "m.bias");
}

RANK_CASE_ON(Behaviour_H14, pair_in_the_root, 1, 2) {
  tied_pair(context, {});
  tied_pair(context, with({}, true));
  tied_pair(context, per_parameter({}));
  tied_pair(context, per_parameter({}, true));
}
RANK_CASE_ON(Behaviour_H15, pair_over_two_units, 1, 2) {
  tied_pair(context, units_of({"Linear"}));
  tied_pair(context, with(units_of({"Linear"}), true));
  tied_pair(context, per_parameter(units_of({"Linear"})));
}
RANK_CASE_ON(Behaviour_H15, pair_kept_after_forward, 1, 2) {
  Sharding sharding = units_of({"Linear"});
  sharding.strategy = "shard_grad_op";
  tied_pair(context, sharding);
}

const std::vector<double> kRowEightOfTwo{-0.005465, -0.457864, 0.048593, -0.361653};
const std::vector<double> kRowEightOfFour{0.018955, -0.667207, 0.090322, -0.538384};

void tied_table(RankContext& context, const Sharding& sharding, bool expects_a_note) {
  static const std::map<std::pair<int64_t, int64_t>, std::vector<double>> kLosses{
      {{2, 0}, {2.048212, 1.998790, 1.934298}},
      {{2, 1}, {2.073148, 2.040086, 1.999012}},
      {{4, 0}, {2.052858, 2.003080, 1.930678}},
      {{4, 3}, {2.063034, 2.015691, 1.946581}}};
  static const std::vector<double> kGreatestChange{0.156353, 0.172381, 0.129857, 0.084622, 0.141824,
                                                   0.015863, 0.014987, 0.014196, 0.157864};
  auto module = load(context, "tied_table");
  const auto sharded = shard(context, module, sharding);
  ASSERT_EQ(sharded->parameters().size(), 1U);
  if (expects_a_note) {
    bool named = false;
    for (const std::string& note : sharded->plan().notes) {
      named = named || (note.find("embedding.weight") != std::string::npos);
    }
    EXPECT_TRUE(named) << "the plan does not say where the tied weight went";
  }
  torch::optim::SGD optimizer(tensors_of(*sharded), torch::optim::SGDOptions(0.5));
  const int64_t r = context.rank();
  const at::Tensor ids = context.world() == 2
                             ? (r == 0 ? at::tensor({0, 1, 8}, at::kLong) : at::tensor({2, 3, 4}, at::kLong))
                             : at::tensor({r, r + 4, int64_t{8}}, at::kLong);
  const auto wanted = kLosses.find({context.world(), r});
  for (size_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(module.forward({ids}).toTensor(), ids);
    if (wanted != kLosses.end()) {
      EXPECT_NEAR(loss.item<double>(), wanted->second[step], 2e-5);
    }
    loss.backward();
    optimizer.step();
    expect_tied(module, "embedding.weight", "linear.weight");
  }
  sharded->detach();
  expect_tied(module, "embedding.weight", "linear.weight");
  const at::Tensor weight = named_parameters(module).at("linear.weight").detach();
  const at::Tensor change = (weight - fill({9, 4}, 3)).abs().amax({1});
  const auto& row = context.world() == 2 ? kRowEightOfTwo : kRowEightOfFour;
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(weight[8][i].item<double>(), row[static_cast<size_t>(i)], 2e-5);
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_GT(change[i].item<double>(), 0) << "row " << i << " never changed";
    if (context.world() == 2) {
      EXPECT_NEAR(change[i].item<double>(), kGreatestChange[static_cast<size_t>(i)], 2e-5);
    }
  }
}

RANK_CASE_ON(Behaviour_H16, uneven_table_in_the_root, 2, 4) {
  tied_table(context, {}, false);
  tied_table(context, with({}, true), false);
  tied_table(context, per_parameter({}), false);
}
RANK_CASE_ON(Behaviour_H16, uneven_table_over_two_units, 2, 4) {
  tied_table(context, units_of({"Embedding", "Linear"}), true);
  tied_table(context, with(units_of({"Embedding", "Linear"}), true), true);
  tied_table(context, per_parameter(units_of({"Embedding", "Linear"})), true);
}

}  // namespace
}  // namespace fsdp2::testing
