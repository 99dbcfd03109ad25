#include <gtest/gtest.h>

#include "plugin/wrap/planner.hpp"
#include "registry/rank_memory.hpp"
#include "registry/toml_reader.hpp"
#include "tests/unit/helpers.hpp"

namespace fsdp2 {
namespace {

constexpr int64_t kBlock = 1024 * 64 * 4;  // bytes

/// `blocks` units of one matrix each, in a root with a frozen parameter.
RankMemory memory(const std::string& options, int64_t world, const std::string& optimizer = "adamw", int blocks = 4) {
  test::TreeBuilder tree;
  tree.parameter(0, "table", {1024, 64});
  for (int i = 0; i < blocks; ++i) {
    const size_t block = tree.module(0, "b" + std::to_string(i), "Block");
    tree.parameter(block, "w", {1024, 64});
  }
  ModuleTree made = tree.tree();
  made.parameters[0].trainable = false;
  const std::string wrap = "[fsdp]\nwrap.policy = \"transformer\"\nwrap.layer_classes = [\"Block\"]\n";
  return rank_memory(make_plan(made, read_options(wrap + options), world), *find_optimizer_state(optimizer));
}

TEST(RankMemory, AtRest) {
  const RankMemory rank = memory("", 4);
  EXPECT_EQ(rank.parameters, 5 * kBlock / 4);
  EXPECT_EQ(rank.gradients, 4 * kBlock / 4) << "the frozen one has none";
  EXPECT_EQ(rank.optimizer, 2 * 4 * kBlock / 4);
  EXPECT_EQ(rank.at_rest(), rank.parameters + rank.gradients + rank.optimizer);
  EXPECT_EQ(memory("", 4, "sgd").optimizer, 0);
  EXPECT_EQ(memory("", 4, "sgd_momentum").optimizer, 4 * kBlock / 4);
}

TEST(RankMemory, OptimizerStateIsThatOfTheRankWithMost) {
  // Three rows of 64 over two ranks: one has two, one has one.
  test::TreeBuilder tree;
  tree.parameter(0, "w", {3, 64});
  const Plan plan = make_plan(tree.tree(), read_options("[fsdp]\nlayout = \"per_parameter\""), 2);
  EXPECT_EQ(rank_memory(plan, *find_optimizer_state("adamw")).optimizer, 2 * 2 * 64 * 4);
}

/// PyTorch's account of a block in backward: its parameters, its gradients, and those of the block before on their way;
/// one more for what is gathered ahead. The root's own table is whole beside them.
TEST(RankMemory, PeaksOfUnitsThatReshard) {
  const RankMemory rank = memory("prefetch.forward = 0\nprefetch.backward = 0", 4);
  EXPECT_EQ(rank.unsharded_in_forward, kBlock + kBlock);
  EXPECT_EQ(rank.unsharded_in_backward, kBlock + 3 * kBlock);
  EXPECT_EQ(rank.forward_peak, rank.parameters + rank.optimizer + rank.unsharded_in_forward);
  EXPECT_EQ(rank.backward_peak, rank.at_rest() + rank.unsharded_in_backward);
  EXPECT_EQ(memory("", 4).unsharded_in_backward, kBlock + 4 * kBlock);
}

TEST(RankMemory, PeaksOfUnitsThatAreKept) {
  const RankMemory rank = memory("strategy = \"shard_grad_op\"", 4);
  EXPECT_EQ(rank.unsharded_in_forward, 5 * kBlock);
  EXPECT_EQ(rank.unsharded_in_backward, 5 * kBlock + 2 * kBlock);
}

TEST(RankMemory, PrecisionHalvesWhatIsWhole) {
  const RankMemory rank = memory("mixed_precision.param = \"bfloat16\"\nprefetch.backward = 0", 4);
  EXPECT_EQ(rank.parameters, 5 * kBlock / 4);
  EXPECT_EQ(rank.unsharded_in_backward, (kBlock + 3 * kBlock) / 2);
}

TEST(RankMemory, NamesOfOptimizers) {
  EXPECT_EQ(find_optimizer_state("lion"), nullptr);
  EXPECT_EQ(optimizer_names().front(), "adamw");
}

}  // namespace
}  // namespace fsdp2
