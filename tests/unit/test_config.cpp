// resolve(): what follows from what, and what contradicts what.
#include "registry/config.hpp"

#include "adapters/config.hpp"
#include "helpers.hpp"
#include "registry/consistency.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2 {
namespace {

using test::text_of;

Fsdp2Options read(const std::string& body) {
  return read_options("[fsdp]\n" + body, "t.toml");
}

std::string fault(const std::string& body) {
  return text_of([&] { read(body); });
}

TEST(Resolve, StrategyAndReshardFollowEachOther) {
  EXPECT_EQ(read("").strategy, "full_shard");
  EXPECT_EQ(read("").reshard_after_forward, ReshardAfterForward(ReshardAuto{}));
  EXPECT_EQ(read("reshard_after_forward = false").strategy, "shard_grad_op");
  EXPECT_EQ(read("reshard_after_forward = true").strategy, "full_shard");
  EXPECT_EQ(read("reshard_after_forward = 8").strategy, "full_shard");
  EXPECT_EQ(read("reshard_after_forward = false\nmesh.replicate = 2").strategy, "hybrid_shard_zero2");
  EXPECT_EQ(read("mesh.replicate = 2").strategy, "hybrid_shard");
  EXPECT_EQ(read("strategy = 'shard_grad_op'").reshard_after_forward, ReshardAfterForward(false));
  EXPECT_EQ(read("strategy = 'fsdp2.no_shard'").reshard_after_forward, ReshardAfterForward(false));
  EXPECT_EQ(read("strategy = 'full_shard'").reshard_after_forward, ReshardAfterForward(ReshardAuto{}));
}

TEST(Resolve, TableOfContradictions) {
  // dialects of FSDP2: which strategies go with which reshard rule; "auto" goes with all.
  for (const char* strategy : {"full_shard", "fsdp2.hybrid_shard"}) {
    EXPECT_TRUE(goes_together(strategy, true)) << strategy;
    EXPECT_TRUE(goes_together(strategy, int64_t{2})) << strategy;
    EXPECT_FALSE(goes_together(strategy, false)) << strategy;
    EXPECT_TRUE(goes_together(strategy, ReshardAuto{})) << strategy;
  }
  for (const char* strategy : {"shard_grad_op", "no_shard", "fsdp1.hybrid_shard_zero2"}) {
    EXPECT_FALSE(goes_together(strategy, true)) << strategy;
    EXPECT_FALSE(goes_together(strategy, int64_t{2})) << strategy;
    EXPECT_TRUE(goes_together(strategy, false)) << strategy;
    EXPECT_TRUE(goes_together(strategy, ReshardAuto{})) << strategy;
  }
  for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard_zero2"}) {
    EXPECT_TRUE(goes_together(strategy, int64_t{1})) << strategy << ": 1 keeps, and a note says so";
  }
  EXPECT_TRUE(goes_together("acme.mine", true));
  EXPECT_TRUE(goes_together("acme.mine", false));
}

TEST(Resolve, ContradictionsNameBothSides) {
  EXPECT_EQ(fault("strategy = 'full_shard'\nreshard_after_forward = false"),
            "t.toml:3:25: `reshard_after_forward = false` contradicts `strategy = \"full_shard\"` (t.toml:2:12): that "
            "strategy reshards after forward (true, \"auto\" or a number of ranks)");
  EXPECT_EQ(fault("reshard_after_forward = true\nstrategy = 'no_shard'"),
            "t.toml:3:12: `strategy = \"no_shard\"` contradicts `reshard_after_forward = true` (t.toml:2:25): that "
            "strategy does not reshard after forward (false or \"auto\")");
  EXPECT_EQ(
      fault("mesh.replicate = -1\nmesh.shard = -1"),
      "t.toml:3:14: `mesh.shard = -1` contradicts `mesh.replicate = -1` (t.toml:2:18): only one of the two can be "
      "-1, the rest of the ranks");
  EXPECT_EQ(fault("wrap.policy = 'every'\nwrap.min_num_params = 5"),
            "t.toml:3:23: `wrap.min_num_params` goes with `wrap.policy = \"size\"` only, and the policy is \"every\"");
  EXPECT_EQ(fault("wrap.layer_classes = ['A']"),
            "t.toml:2:22: `wrap.layer_classes` goes with `wrap.policy = \"transformer\"` only, and the policy is "
            "\"none\", the default");
  EXPECT_EQ(fault("dialect = 'accelerate'"), "t.toml:2:11: `dialect` needs `config` beside it");
}

TEST(Resolve, APolicyNeedsItsKey) {
  EXPECT_EQ(fault("wrap.policy = 'transformer'"),
            "t.toml:2:15: `wrap.policy = \"transformer\"` needs `wrap.layer_classes` beside it");
  EXPECT_EQ(fault("wrap.policy = 'size'"),
            "t.toml:2:15: `wrap.policy = \"size\"` needs `wrap.min_num_params` beside it");
  EXPECT_EQ(fault("wrap.policy = 'modules'"),
            "t.toml:2:15: `wrap.policy = \"modules\"` needs `wrap.modules` beside it");
}

TEST(Resolve, SourcesAreKept) {
  const GivenKeys given = read_given("[fsdp]\nlayout = 'flat'\n", "t.toml");
  const Config config = resolve(given);
  ASSERT_EQ(config.sources.size(), 1U);
  EXPECT_EQ(place(config.sources.at("layout")), "t.toml:2:10: ");
}

GivenKeys as_base(const std::string& body) {
  GivenKeys keys = read_given("[fsdp]\n" + body, "host.yaml");
  for (auto& [key, entry] : keys) entry.source.translated = true;
  return keys;
}

TEST(Resolve, TheBaseGivesWay) {
  const GivenKeys base = as_base(
      "strategy = 'full_shard'\nreshard_after_forward = true\nwrap.policy = 'transformer'\nwrap.layer_classes = "
      "['A']\n");
  const Config config = resolve(read_given("[fsdp]\nstrategy = 'no_shard'\nwrap.policy = 'every'\n", "t.toml"), base);
  EXPECT_EQ(config.options.strategy, "no_shard");
  EXPECT_EQ(config.options.reshard_after_forward, ReshardAfterForward(false));
  EXPECT_EQ(config.options.wrap, (WrapOptions{WrapPolicy::kEvery, {}, std::nullopt, {}}));
  EXPECT_EQ(config.notes,
            (std::vector<std::string>{"host.yaml:3:25: reshard_after_forward gives way to `strategy` of [fsdp]",
                                      "host.yaml:5:22: wrap.layer_classes gives way to `wrap.policy` of [fsdp]"}));
}

TEST(Resolve, WhatAgreesInTheBaseStays) {
  const GivenKeys base = as_base("strategy = 'full_shard'\nreshard_after_forward = true\n");
  const Config config = resolve(read_given("[fsdp]\nstrategy = 'full_shard'\n", "t.toml"), base);
  EXPECT_EQ(config.options.reshard_after_forward, ReshardAfterForward(true));
  EXPECT_TRUE(config.notes.empty());
}

TEST(Resolve, APolicyOfTheBaseMayLackItsKey) {
  const Config config = resolve({}, as_base("wrap.policy = 'transformer'\n"));
  EXPECT_EQ(config.options.wrap.policy, WrapPolicy::kTransformer);
  const Config with =
      resolve(read_given("[fsdp]\nwrap.layer_classes = ['A']\n", "t.toml"), as_base("wrap.policy = 'transformer'\n"));
  EXPECT_EQ(with.options.wrap.layer_classes, std::vector<std::string>{"A"});
}

}  // namespace
}  // namespace fsdp2
