#include "registry/plan.hpp"

#include <gtest/gtest.h>

namespace fsdp2 {
namespace {

// A root around `a`, which is around `b`; 4 ranks. Bytes when whole: b 64, a 128, root 256.
Plan nested(bool root_reshards) {
  Plan plan;
  plan.strategy = "fsdp2.full_shard";
  plan.layout = "ragged";
  plan.mesh = {1, 4};
  PlannedUnit b{"a.b", "B", 1, true, {{DType::kFloat32, true, 4, 15}}, {{"a.b.w", {"tied"}, {5, 3}, 0, 0}}};
  PlannedUnit a{"a", "A", 2, true, {{DType::kFloat32, true, 8, 32}}, {{"a.w", {}, {32}, 0, 0}}};
  PlannedUnit root{"", "Model", {}, root_reshards, {{DType::kBFloat16, false, 32, 128}}, {{"w", {}, {4, 4, 8}, 0, 0}}};
  plan.units = {b, a, root};
  return plan;
}

TEST(Plan, Numel) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({3, 4}), 12);
  EXPECT_EQ(numel({3, 0}), 0);
}

TEST(Plan, Bytes) {
  const Plan plan = nested(true);
  EXPECT_EQ(unsharded_bytes(plan, plan.units[0]), 64);
  EXPECT_EQ(unsharded_bytes(plan, plan.units[1]), 128);
  EXPECT_EQ(unsharded_bytes(plan, plan.units[2]), 256);
  EXPECT_EQ(shard_bytes(plan), (64 + 128 + 256) / 4);
  EXPECT_EQ(parameter_bytes(plan), 60 + 128 + 256);
}

TEST(Plan, PeakIsAUnitAndWhatEnclosesItAndWhatIsKept) {
  EXPECT_EQ(peak_unsharded_bytes(nested(true)), 64 + 128 + 256);
  Plan plan = nested(false);
  EXPECT_EQ(peak_unsharded_bytes(plan), 64 + 128 + 256);
  plan.units[0].parent = 2;  // beside `a`, no longer inside it
  EXPECT_EQ(peak_unsharded_bytes(plan), 128 + 256);
  plan.units[0].reshard_after_forward = false;
  EXPECT_EQ(peak_unsharded_bytes(plan), 64 + 128 + 256);
}

/// Until they are copied out, a unit's gathered parts lie beside it: b 64 bytes, root 256 on their way to 260.
TEST(Plan, PeakCountsWhatIsCopiedOut) {
  Plan plan = nested(true);
  plan.units[0].buffers[0].copied_out = 17;
  plan.units[2].buffers[0].copied_out = 130;
  EXPECT_EQ(unsharded_bytes(plan, plan.units[0]), 68);
  EXPECT_EQ(unsharded_bytes(plan, plan.units[2]), 260);
  EXPECT_EQ(shard_bytes(plan.units[2]), 64);
  EXPECT_EQ(peak_unsharded_bytes(plan), (64 + 68) + 128 + 260);  // while b is gathered, inside of a and the root
  plan.units[0].buffers[0].copied_out = 0;
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 260);  // while the root is, before the others
  // A root that is kept is gathered before what is inside it, too.
  plan.units[2].reshard_after_forward = false;
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 260);
  // Kept units that do not lie inside the one that is gathered may all be there.
  for (PlannedUnit& unit : plan.units) unit.reshard_after_forward = false;
  plan.units[0].parent = 2;
  plan.units[1].buffers[0].copied_out = 33;
  EXPECT_EQ(peak_unsharded_bytes(plan), 64 + (128 + 132) + 260);
}

/// Of 4 ranks each two keep the whole between them, so each rank half of it: b 32 bytes, a 64, root 128.
TEST(Plan, PeakCountsWhatIsKeptInBlocks) {
  Plan plan = nested(true);
  for (PlannedUnit& unit : plan.units) unit.reshard_to = 2;
  EXPECT_EQ(block_bytes(plan, plan.units[0]), 32);
  EXPECT_EQ(block_bytes(plan, plan.units[2]), 128);
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128 + 64 + 32);  // when the call of b ends
  plan.units[0].parent = 2;                                    // beside `a`
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128 + 64 + 32);  // when that of a does, or backward begins with the root
  plan.prefetch_forward = 1;
  // b runs and a's gather begins, in a second forward from what the first one has kept of a.
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 64 + 128 + 64);
  plan.units[1].buffers[0].cast = DType::kBFloat16;
  EXPECT_EQ(block_bytes(plan, plan.units[1]), 32);
  EXPECT_NE(to_table(plan).find("  to 2"), std::string::npos);
}

/// c 32, b 64, a 128 beside each other in the root, 256: forwards run c, b, a.
TEST(Plan, PeakCountsNamedUnitsInPlaceOfTheDepth) {
  Plan plan = nested(true);
  plan.units.insert(plan.units.begin(), {"c", "C", 3, true, {{DType::kFloat32, true, 2, 8}}, {{"c.w", {}, {8}, 0, 0}}});
  for (size_t u = 0; u < 3; ++u) plan.units[u].parent = 3;
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128);
  plan.units[0].ahead_in_forward = {2};  // a, until it has run
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128 + 64);
  plan.units[0].ahead_in_forward = {1, 3};  // the root is whole all along
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128);
  plan.units[2].ahead_in_forward = {0};  // which has run: it stays until the forward ends
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128 + 32);
  plan.prefetch_backward = 1;  // a, b, c
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128 + 64);
  plan.units[2].ahead_in_backward = {0};
  EXPECT_EQ(peak_unsharded_bytes(plan), 256 + 128 + 32);
}

/// P, 128 bytes, around C, 32, and then Q, 32, beside it; halves stay. When P ends, Q is gathered already.
TEST(Plan, PeakCountsTheEndOfAUnitAroundOthers) {
  Plan plan = nested(true);
  PlannedUnit c{"p.c", "C", 1, true, {{DType::kFloat32, true, 2, 8}}, {{"p.c.w", {}, {8}, 0, 0}}};
  PlannedUnit p{"p", "P", 3, true, {{DType::kFloat32, true, 8, 32}}, {{"p.w", {}, {32}, 0, 0}}};
  PlannedUnit q{"q", "Q", 3, true, {{DType::kFloat32, true, 2, 8}}, {{"q.w", {}, {8}, 0, 0}}};
  PlannedUnit root{"", "Model", {}, false, {}, {}};
  plan.units = {c, p, q, root};
  for (size_t u = 0; u < 3; ++u) plan.units[u].reshard_to = 2;
  plan.prefetch_forward = 1;
  EXPECT_EQ(peak_unsharded_bytes(plan), 128 + 64 + 16 + 32);
}

TEST(Plan, NothingIsGatheredWhereEachRankHoldsAll) {
  Plan plan = nested(true);
  EXPECT_TRUE(gathers(plan));
  plan.mesh = {4, 1};  // no_shard
  EXPECT_FALSE(gathers(plan));
  EXPECT_TRUE(reduces(plan));
  EXPECT_EQ(peak_unsharded_bytes(plan), 0);
  plan.mesh = {1, 1};
  EXPECT_FALSE(reduces(plan));
  EXPECT_EQ(peak_unsharded_bytes(plan), 0);
  plan.force_collectives = true;
  EXPECT_TRUE(gathers(plan));
  EXPECT_GT(peak_unsharded_bytes(plan), 0);
}

/// Gathers move the compute dtype, shards and files the stored one.
TEST(Plan, BytesOfACast) {
  Plan plan = nested(true);
  plan.units[1].buffers[0].cast = DType::kBFloat16;  // `a`
  plan.units[2].buffers[0].cast = DType::kFloat32;   // the root, stored in bfloat16
  EXPECT_EQ(compute_dtype(plan.units[0].buffers[0]), DType::kFloat32);
  EXPECT_EQ(compute_dtype(plan.units[1].buffers[0]), DType::kBFloat16);
  EXPECT_EQ(unsharded_bytes(plan, plan.units[1]), 64);
  EXPECT_EQ(unsharded_bytes(plan, plan.units[2]), 512);
  EXPECT_EQ(shard_bytes(plan), (64 + 128 + 256) / 4);
  EXPECT_EQ(peak_unsharded_bytes(plan), 64 + 64 + 512);
  // Where each rank holds all, what is cast is a copy beside it.
  plan.mesh = {4, 1};
  EXPECT_EQ(peak_unsharded_bytes(plan), 16 + 128);
}

TEST(Plan, ShardRanges) {
  PlannedUnit unit;
  unit.buffers = {{DType::kFloat32, true, 8, 18}};
  const PlannedParameter matrix{"m", {}, {3, 4}, 0, 0};  // elements 0 to 12 of the buffer
  const PlannedParameter vector{"v", {}, {6}, 0, 16};    // elements 16 to 22
  EXPECT_EQ(shard_range(unit, matrix, 0), (ShardRange{0, 8}));
  EXPECT_EQ(shard_range(unit, matrix, 1), (ShardRange{8, 12}));
  EXPECT_EQ(shard_range(unit, matrix, 2), (ShardRange{12, 12}));
  EXPECT_EQ(shard_range(unit, vector, 0), (ShardRange{0, 0}));
  EXPECT_EQ(shard_range(unit, vector, 2), (ShardRange{0, 6}));
}

TEST(Plan, ShardShapes) {
  const PlannedParameter matrix{"m", {}, {3, 4, 2}, 0, 0};
  EXPECT_EQ(shard_shape(matrix, {0, 16}), (std::vector<int64_t>{2, 4, 2}));
  EXPECT_EQ(shard_shape(matrix, {16, 24}), (std::vector<int64_t>{1, 4, 2}));
  EXPECT_EQ(shard_shape(matrix, {0, 12}), (std::vector<int64_t>{12}));
  EXPECT_EQ(shard_shape(matrix, {12, 16}), (std::vector<int64_t>{4}));
  EXPECT_EQ(shard_shape(matrix, {24, 24}), (std::vector<int64_t>{0, 4, 2}));
  EXPECT_EQ(shard_shape({"v", {}, {6}, 0, 0}, {2, 5}), (std::vector<int64_t>{3}));
  EXPECT_EQ(shard_shape({"e", {}, {6, 0}, 0, 0}, {0, 0}), (std::vector<int64_t>{0, 0}));
}

TEST(Plan, Table) {
  Plan plan = nested(false);
  plan.notes = {"a remark"};
  EXPECT_EQ(
      to_table(plan),
      "fsdp2.full_shard, layout ragged, 4 ranks (1 x 4)\n"
      "unit    class  parameters  dtype            whole  a rank  padding B  at most B  reshard\n"
      "a.b     B               1  float32           64 B    16 B          4        320  yes\n"
      "a       A               1  float32          128 B    32 B          0        320  yes\n"
      "(root)  Model           1  bfloat16 frozen  256 B    64 B          0        320  no\n"
      "parameters 444 B, a rank holds 112 B (padding over all ranks 4 B) and gathers at most 448 B beside it at once\n"
      "note: a remark\n");
}

TEST(Plan, TableSaysWhatIsCast) {
  Plan plan = nested(true);
  plan.units[1].buffers[0].cast = DType::kBFloat16;
  plan.units[1].inputs_cast = DType::kBFloat16;
  plan.units[1].outputs_cast = DType::kFloat32;
  plan.units[2].outputs_cast = DType::kFloat16;
  const std::string table = to_table(plan);
  EXPECT_NE(table.find("reshard  casts\n"), std::string::npos) << table;
  EXPECT_NE(table.find("float32 as bfloat16   64 B    32 B          0        320  yes      inputs to bfloat16, "
                       "outputs to float32\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("yes      outputs to float16\n"), std::string::npos) << table;
}

}  // namespace
}  // namespace fsdp2
