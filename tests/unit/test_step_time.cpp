// Against times worked out by hand.
#include <gtest/gtest.h>

#include "plugin/cli/step_time.hpp"
#include "plugin/wrap/planner.hpp"
#include "registry/toml_reader.hpp"
#include "tests/unit/helpers.hpp"

namespace fsdp2::cli {
namespace {

constexpr double kBlock = 1024 * 64 * 4;          // bytes
constexpr double kWork = 2.0 * 1024 * 64 * 1000;  // of a block, forward, a thousand tokens

ModuleTree blocks() {
  test::TreeBuilder tree;
  for (const char* name : {"a", "b"}) tree.parameter(tree.module(0, name, "Block"), "w", {1024, 64});
  return tree.tree();
}

StepTime time(const std::string& options, int64_t world, const Machine& machine, const ModuleTree& tree = blocks()) {
  const std::string wrap = "[fsdp]\nwrap.policy = \"every\"\n";
  return step_time(make_plan(tree, read_options(wrap + options), world), tree, machine);
}

Machine node(int64_t ranks) {
  Machine machine;
  machine.ranks_per_node = ranks;
  machine.node_bandwidth = 1e9;
  machine.network = 1e9;
  return machine;
}

TEST(StepTime, CommunicationAlone) {
  // Two gathers and a reduction a block, half of each is sent.
  const StepTime step = time("", 2, node(2));
  EXPECT_DOUBLE_EQ(step.communicating, 2 * 3 * kBlock / 2 / 1e9);
  EXPECT_DOUBLE_EQ(step.total, step.communicating);
  EXPECT_EQ(step.computing, 0);
}

TEST(StepTime, ComputingHidesWhatIsGatheredAhead) {
  Machine machine = node(2);
  machine.flops = 1e9;  // a block takes 131 ms, a gather 0.13 ms
  machine.tokens = 1000;
  const StepTime step = time("", 2, machine);
  EXPECT_DOUBLE_EQ(step.computing, 2 * 3 * kWork / 1e9);
  const double one = kBlock / 2 / 1e9;
  // The first gather of each pass is waited for, and the last reduction.
  EXPECT_NEAR(step.waiting, 3 * one, 1e-12);
  const StepTime exposed = time("prefetch.forward = 0\nprefetch.backward = 0", 2, machine);
  EXPECT_NEAR(exposed.waiting, 6 * one, 1e-12) << "and each gather; the reduction of the first block delays the last";
}

TEST(StepTime, GroupsShareTheNetworkOfANode) {
  // Two nodes of four: shards inside a node, four groups of replicas over the network, each with a quarter of it.
  Machine machine = node(4);
  machine.network = 1e8;
  const StepTime step = time("strategy = \"hybrid_shard\"\nmesh.replicate = 2\nmesh.shard = 4", 8, machine);
  const double inside = 2 * 3 * kBlock * 3 / 4 / 1e9;
  const double between = 2 * (kBlock / 4) / (1e8 / 4);
  EXPECT_NEAR(step.communicating, inside + between, 1e-12);
  // One group over both nodes has the network to itself.
  EXPECT_NEAR(time("", 8, machine).communicating, 2 * 3 * kBlock * 7 / 8 / 1e8, 1e-12);
}

TEST(StepTime, LatencyCountsForEachCollective) {
  Machine machine = node(2);
  machine.latency = 1e-3;
  EXPECT_NEAR(time("", 2, machine).communicating, 2 * 3 * (kBlock / 2 / 1e9 + 1e-3), 1e-12);
}

/// Backward ends at the first that trains: a frozen one before it has none, a frozen one behind it half of one.
TEST(StepTime, FrozenBlocks) {
  for (const auto& [frozen, passes] : {std::pair{"a", 1 + 1 + 2}, {"b", 1 + 1 + 2 + 1}}) {
    test::TreeBuilder tree;
    for (const std::string name : {"a", "b"}) {
      tree.parameter(tree.module(0, name, "Block"), "w", {1024, 64}, DType::kFloat32, name != frozen);
    }
    Machine machine = node(2);
    machine.flops = 1e9;
    machine.tokens = 1000;
    EXPECT_DOUBLE_EQ(time("", 2, machine, tree.tree()).computing, passes * kWork / 1e9) << frozen;
  }
}

TEST(StepTime, LookedUpTablesAndVectorsComputeNothing) {
  test::TreeBuilder tree;
  tree.parameter(tree.module(0, "table", "Embedding"), "weight", {1024, 64});
  tree.parameter(tree.module(0, "norm", "Block"), "weight", {64});
  Machine machine = node(2);
  machine.flops = 1;
  machine.tokens = 1;
  EXPECT_EQ(time("", 2, machine, tree.tree()).computing, 0);
}

}  // namespace
}  // namespace fsdp2::cli
