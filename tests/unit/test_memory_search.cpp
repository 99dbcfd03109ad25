#include <gtest/gtest.h>

#include "plugin/cli/memory_search.hpp"
#include "registry/error.hpp"
#include "registry/mesh.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2::cli {
namespace {

/// Made up: bf16 takes 30 away, resharding 20; both beside 100 bytes over all ranks' share.
int64_t peak(const Config& config, int64_t world) {
  const Fsdp2Options& options = config.options;
  int64_t bytes = 400 / world + 60;
  if (options.mixed_precision.param) bytes -= 30;
  if (options.reshard_after_forward == ReshardAfterForward(true)) bytes -= 20;
  return bytes;
}

std::vector<Alternative> found(int64_t limit, const PeakOf& peak_of = peak, int64_t world = 4) {
  return find_alternatives({}, world, limit, peak_of);
}

TEST(MemorySearch, SingleChangesTheBestFirst) {
  const auto all = found(145);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].changes, std::vector<std::string>{"mixed_precision.param=\"bfloat16\""});
  EXPECT_EQ(all[0].peak, 130);
  EXPECT_TRUE(all[0].fits);
  EXPECT_EQ(all[1].peak, 140);
}

TEST(MemorySearch, ChangesTogether) {
  const auto all = found(115);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2].changes.size(), 2U);
  EXPECT_EQ(all[2].peak, 110);
  EXPECT_TRUE(all[2].fits);
}

TEST(MemorySearch, MoreRanks) {
  const auto all = found(40);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_FALSE(all[2].fits);
  EXPECT_EQ(all[3].changes.back(), "--world 16");
  EXPECT_EQ(all[3].peak, 400 / 16 + 10);
  EXPECT_TRUE(all[3].fits);
}

TEST(MemorySearch, NothingHelps) {
  EXPECT_TRUE(found(1, [](const Config&, int64_t) { return 5; }).empty());
}

TEST(MemorySearch, PlansThatAreRefusedDoNotCount) {
  const auto all = found(145, [](const Config& config, int64_t world) {
    if (config.options.mixed_precision.param) throw Error(ErrorCode::kUnsupported, "no");
    return peak(config, world);
  });
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].changes, std::vector<std::string>{"reshard_after_forward=true"});
}

/// A change that helps only beside another one is found.
TEST(MemorySearch, OneChangeMakesRoomForAnother) {
  WrapOptions wrap;
  wrap.policy = WrapPolicy::kTransformer;
  wrap.layer_classes = {"Block", "Embedding"};
  const auto peak_of = [&](const Config& config, int64_t) -> int64_t {
    const bool reshards = config.options.reshard_after_forward == ReshardAfterForward(true);
    return config.options.wrap == wrap ? (reshards ? 40 : 90) : 100;
  };
  const auto all = find_alternatives({}, 4, 50, peak_of, wrap);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().changes,
            (std::vector<std::string>{R"(wrap={ policy = "transformer", layer_classes = ["Block", "Embedding"] })",
                                      "reshard_after_forward=true"}));
  EXPECT_TRUE(all.back().fits);
}

Config read_config(const std::string& options) {
  return resolve(read_given("[fsdp]\n" + options, "a.toml"));
}

std::vector<Alternative> found_from(const std::string& options, const PeakOf& peak_of) {
  return find_alternatives(read_config(options), 8, 1, peak_of, {}, 4);
}

/// What is left of replicas is not: a mesh of the file is taken back too.
TEST(MemorySearch, AllRanksInPlaceOfAHybrid) {
  const auto peak_of = [](const Config& config, int64_t world) { return 800 / mesh_of(config, world, 4).shard; };
  auto all = found_from("strategy = \"hybrid_shard\"", peak_of);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].changes, (std::vector<std::string>{"strategy=\"full_shard\"", "reshard_after_forward=true"}));
  EXPECT_EQ(all[0].peak, 100);
  all = found_from("strategy = \"hybrid_shard\"\nmesh = { replicate = 4, shard = 2 }", peak_of);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].changes, (std::vector<std::string>{"strategy=\"full_shard\"", "reshard_after_forward=true",
                                                      "mesh.replicate=1", "mesh.shard=-1"}));
  EXPECT_EQ(all[0].peak, 100);
}

TEST(MemorySearch, ReshardingHybrid) {
  const auto all = found_from("strategy = \"hybrid_shard_zero2\"", [](const Config& config, int64_t) -> int64_t {
    return config.options.strategy == "hybrid_shard" ? 80 : 88;
  });
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].changes, (std::vector<std::string>{"strategy=\"hybrid_shard\"", "reshard_after_forward=true"}));
}

TEST(MemorySearch, LayoutWithoutPadding) {
  const auto all = found_from("layout = \"per_parameter\"", [](const Config& config, int64_t) -> int64_t {
    return layout_of(config.options) == Layout::kRagged ? 30 : 800;
  });
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].changes, std::vector<std::string>{"layout=\"ragged\""});
}

/// What halves with twice as many ranks, and what does not: it is seen early that no number of them is enough.
TEST(MemorySearch, MoreRanksAreNotTriedInVain) {
  int calls = 0;
  const PeakOf peak_of = [&](const Config&, int64_t world) {
    ++calls;
    return 100 + 800 / world;
  };
  EXPECT_TRUE(find_alternatives({}, 8, 50, peak_of).empty());
  EXPECT_LT(calls, 16);
  const auto found = find_alternatives({}, 8, 101, peak_of);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].changes, std::vector<std::string>{"--world 512"});
}

TEST(MemorySearch, MoreRanksAreOnMoreNodes) {
  const auto all = found_from("", [](const Config&, int64_t world) { return 32 / world; });
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].changes, std::vector<std::string>{"--world 32 --nodes 8"});
}

}  // namespace
}  // namespace fsdp2::cli
