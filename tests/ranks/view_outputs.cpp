// A unit returns a view, its caller changes it in place, and backward finds no weights.
#include <gtest/gtest.h>

#include <set>

#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/harness/training.hpp"

namespace fsdp2::testing {
namespace {

struct Wanted {
  std::vector<double> losses;
  std::vector<double> sums;
  std::vector<double> absolute_sums;
};

const std::map<int64_t, Wanted> kWanted{{1,
                                         {{0.406922},
                                          {-0.004247, 0.047164, -0.007069, 0.607067, -0.384855, -1.785122},
                                          {0.182089, 0.427768, 0.829882, 1.257051, 1.028425, 2.357363}}},
                                        {2,
                                         {{0.406922, 1.427681},
                                          {0.105768, 0.051204, -0.211631, 0.904816, -8.271497, -2.759501},
                                          {1.573193, 0.618677, 1.394518, 1.855811, 9.836829, 3.375226}}}};

void change_in_place(RankContext& context, const std::string& model, ReshardAfterForward reshard,
                     const std::string& strategy) {
  SCOPED_TRACE(model + " " + strategy);
  const Wanted& wanted = kWanted.at(context.world());
  auto module = load(context, model);
  Sharding sharding;
  sharding.strategy = strategy;
  sharding.modules = {"inner", "head"};
  sharding.reshard = reshard;
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, sharding, communicator);
  std::set<std::string> units;
  for (const PlannedUnit& unit : sharded->plan().units) units.insert(unit.path);
  EXPECT_EQ(units, (std::set<std::string>{"", "head", "inner"}));
  const at::Tensor x = fill({1, 3, 4}, 5) + static_cast<double>(context.rank());
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
    communicator->forget();
    const at::Tensor loss = module.forward({x}).toTensor().pow(2).sum();
    EXPECT_NEAR(loss.item<double>(), wanted.losses[static_cast<size_t>(context.rank())], 2e-5);
    const int64_t forward_gathers = communicator->count(Collective::kAllGather);
    loss.backward();
    if (context.world() > 1 && strategy == "full_shard") {
      EXPECT_GT(communicator->count(Collective::kAllGather), forward_gathers) << "backward must gather `inner` again";
    }
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, tensor] : sharded->parameters()) {
      ASSERT_TRUE(tensor.grad().defined()) << name;
      gradients[name] = tensor.grad();
    }
    const std::vector<std::string> order{"inner.up.weight", "inner.up.bias", "inner.down.weight",
                                         "inner.down.bias", "head.weight",   "head.bias"};
    for (size_t p = 0; p < order.size(); ++p) {
      const at::Tensor& gradient = gradients.at(order[p]);
      // Where ranks hold parts, the parts' sums add up; where each holds all, each has the whole sum.
      const double share = strategy == "no_shard" ? 1.0 / static_cast<double>(context.world()) : 1.0;
      EXPECT_NEAR(context.sum(gradient.sum().item<double>() * share), wanted.sums[p], 2e-5) << order[p];
      EXPECT_NEAR(context.sum(gradient.abs().sum().item<double>() * share), wanted.absolute_sums[p], 2e-5) << order[p];
    }
    EXPECT_EQ(strategy == "no_shard" ? 0 : sharded->statistics().unsharded_bytes, 0);
  }
}

void all_ways(RankContext& context, const std::string& model) {
  change_in_place(context, model, ReshardAuto{}, "full_shard");
  change_in_place(context, model, true, "full_shard");
  change_in_place(context, model, ReshardAuto{}, "shard_grad_op");
  change_in_place(context, model, ReshardAuto{}, "no_shard");
}

RANK_CASE_ON(Behaviour_H23, squeeze, 1, 2) {
  all_ways(context, "view_squeeze");
}
RANK_CASE_ON(Behaviour_H23, squeeze_traced, 1, 2) {
  all_ways(context, "view_squeeze_traced");
}
RANK_CASE_ON(Behaviour_H23, no_squeeze, 1, 2) {
  all_ways(context, "view_plain");
}
RANK_CASE_ON(Behaviour_H23, reshape, 1, 2) {
  all_ways(context, "view_reshape");
}
RANK_CASE_ON(Behaviour_H23, squeeze_out_of_place, 1, 2) {
  all_ways(context, "view_squeeze_out_of_place");
}
RANK_CASE_ON(Behaviour_H23, no_squeeze_out_of_place, 1, 2) {
  all_ways(context, "view_plain_out_of_place");
}

}  // namespace
}  // namespace fsdp2::testing
