// Against the formulas of ring collectives: of N bytes over W ranks a rank sends N (W-1)/W to gather or to reduce,
// twice that to do both.
#include <gtest/gtest.h>

#include "plugin/wrap/planner.hpp"
#include "registry/step_traffic.hpp"
#include "registry/toml_reader.hpp"
#include "tests/unit/helpers.hpp"

namespace fsdp2 {
namespace {

/// Two layers of 1024 x 64 in a root with 2048 x 64; everything divides by 8 without padding.
ModuleTree model(bool trainable_root = true) {
  test::TreeBuilder tree;
  tree.parameter(0, "embed", {2048, 64});
  for (const char* name : {"a", "b"}) {
    const size_t layer = tree.module(0, name, "Layer");
    tree.parameter(layer, "w", {1024, 64});
  }
  ModuleTree made = tree.tree();
  made.parameters[0].trainable = trainable_root;
  return made;
}

constexpr int64_t kLayer = 1024 * 64 * 4;
constexpr int64_t kRoot = 2 * kLayer;

StepTraffic traffic(const std::string& options, int64_t world, const ModuleTree& tree = model()) {
  const std::string wrap = "[fsdp]\nwrap.policy = \"transformer\"\nwrap.layer_classes = [\"Layer\"]\n";
  return step_traffic(make_plan(tree, read_options(wrap + options), world), tree);
}

TEST(StepTraffic, FullShard) {
  const StepTraffic step = traffic("", 8);
  const int64_t gathered = kRoot + 4 * kLayer;  // the root is kept for backward
  EXPECT_EQ(step.all_gather, (CollectiveTraffic{5, gathered, gathered * 7 / 8}));
  const int64_t all = kRoot + 2 * kLayer;
  EXPECT_EQ(step.reduce_scatter, (CollectiveTraffic{3, all, all * 7 / 8}));
  EXPECT_EQ(step.all_reduce, CollectiveTraffic{});
}

TEST(StepTraffic, ShardGradOpGathersOnce) {
  const StepTraffic step = traffic("strategy = \"shard_grad_op\"", 4);
  const int64_t all = kRoot + 2 * kLayer;
  EXPECT_EQ(step.all_gather, (CollectiveTraffic{3, all, all * 3 / 4}));
  EXPECT_EQ(step.reduce_scatter, (CollectiveTraffic{3, all, all * 3 / 4}));
}

TEST(StepTraffic, NoShardReducesAll) {
  const StepTraffic step = traffic("strategy = \"no_shard\"", 4);
  const int64_t all = kRoot + 2 * kLayer;
  EXPECT_EQ(step.all_gather, CollectiveTraffic{});
  EXPECT_EQ(step.reduce_scatter, CollectiveTraffic{});
  EXPECT_EQ(step.all_reduce, (CollectiveTraffic{3, all, 2 * all * 3 / 4}));
}

TEST(StepTraffic, HybridReducesShardsOverReplicas) {
  const StepTraffic step = traffic("strategy = \"hybrid_shard\"\nmesh.replicate = 2\nmesh.shard = 4", 8);
  const int64_t all = kRoot + 2 * kLayer;
  EXPECT_EQ(step.reduce_scatter, (CollectiveTraffic{3, all, all * 3 / 4}));
  EXPECT_EQ(step.all_reduce, (CollectiveTraffic{3, all / 4, all / 4}));
}

TEST(StepTraffic, BlocksGatherAmongFewerRanksInBackward) {
  const StepTraffic step = traffic("reshard_after_forward = 2", 8);
  const int64_t all = kRoot + 2 * kLayer;
  EXPECT_EQ(step.all_gather, (CollectiveTraffic{6, 2 * all, all * 7 / 8 + all / 2}));
}

TEST(StepTraffic, PrecisionCountsBytesOfWhatMoves) {
  const StepTraffic step = traffic("mixed_precision.param = \"bfloat16\"\nmixed_precision.reduce = \"float32\"", 8);
  EXPECT_EQ(step.all_gather.bytes, (kRoot + 4 * kLayer) / 2);
  EXPECT_EQ(step.reduce_scatter.bytes, kRoot + 2 * kLayer);
}

TEST(StepTraffic, FrozenParametersAreGatheredAndNotReduced) {
  const StepTraffic step = traffic("reshard_after_forward = true", 8, model(/*trainable_root=*/false));
  EXPECT_EQ(step.all_gather.bytes, 2 * (kRoot + 2 * kLayer));  // the root encloses what trains
  EXPECT_EQ(step.reduce_scatter.bytes, 2 * kLayer);
}

TEST(StepTraffic, UnitsBeforeAnythingTrainableHaveNoBackward) {
  ModuleTree tree = model(/*trainable_root=*/false);
  tree.parameters[1].trainable = false;
  const StepTraffic step = traffic("", 8, tree);
  EXPECT_EQ(step.all_gather.bytes, kRoot + kLayer + 2 * kLayer);
}

/// As where a new head is trained on a frozen model.
TEST(StepTraffic, WhatTrainsAfterAUnitTakesItNotToBackward) {
  test::TreeBuilder builder;
  builder.parameter(builder.module(0, "a", "Layer"), "w", {1024, 64}, DType::kFloat32, /*trainable=*/false);
  builder.parameter(0, "head", {2048, 64});
  const StepTraffic step = traffic("reshard_after_forward = true", 8, builder.tree());
  EXPECT_EQ(step.all_gather.bytes, kLayer + 2 * kRoot);
  EXPECT_EQ(step.reduce_scatter.bytes, kRoot);
}

TEST(StepTraffic, OneRankMovesNothing) {
  const StepTraffic step = traffic("", 1);
  EXPECT_EQ(step.all_gather, CollectiveTraffic{});
  EXPECT_EQ(step.reduce_scatter, CollectiveTraffic{});
  EXPECT_EQ(step.all_reduce, CollectiveTraffic{});
}

}  // namespace
}  // namespace fsdp2
