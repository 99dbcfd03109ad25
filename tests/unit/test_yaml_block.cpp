#include "adapters/yaml_block.hpp"

#include "helpers.hpp"

namespace fsdp2 {
namespace {

using Kind = YamlEntry::Kind;

YamlBlock read(const std::string& yaml) {
  return table_of(read_yaml(yaml, "a.yaml"), "block");
}

TEST(YamlBlock, TypesOfYaml11) {
  const YamlBlock block = read(
      "a: no\nb: 'no'\nc: 1_000\nd: 1e8\ne: ~\nf:\ng: On\nh: '12'\ni: [x, y]\nj: {k: 1}\nk: y\nl: -3\nm: hello "
      "there\n");
  EXPECT_EQ(block.at("a").kind, Kind::kBool);
  EXPECT_FALSE(block.at("a").flag);
  EXPECT_EQ(block.at("b").kind, Kind::kText);
  EXPECT_EQ(block.at("c").kind, Kind::kInt);
  EXPECT_EQ(block.at("c").whole, 1000);
  EXPECT_EQ(block.at("d").kind, Kind::kText);
  EXPECT_EQ(block.at("e").kind, Kind::kNull);
  EXPECT_EQ(block.at("f").kind, Kind::kNull);
  EXPECT_TRUE(block.at("g").flag);
  EXPECT_EQ(block.at("h").kind, Kind::kText);
  EXPECT_EQ(as_int(block.at("h")), 12);
  EXPECT_EQ(block.at("i").list, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(block.at("j").kind, Kind::kMap);
  EXPECT_EQ(block.at("k").kind, Kind::kText);  // PyYAML leaves the single letters alone
  EXPECT_EQ(block.at("l").whole, -3);
  EXPECT_EQ(block.at("m").text, "hello there");
  EXPECT_EQ(find_entry(block, "e"), nullptr);
  EXPECT_EQ(find_entry(block, "zz"), nullptr);
  EXPECT_EQ(as_int(block.at("d")), std::nullopt);
}

TEST(YamlBlock, PlacesCountFromOne) {
  const YamlBlock block = read("first: 1\n  \nsecond:   word\n");
  EXPECT_EQ(place(block.at("second").source), "a.yaml:3:11: ");
  EXPECT_EQ(place(block.at("second").key_source), "a.yaml:3:1: ");
}

TEST(YamlBlock, PrefixIsAddedAndTheLastOfTwoCounts) {
  const YamlBlock block =
      table_of(read_yaml("version: 1\nfsdp_version: 2\n", "a.yaml"), "fsdp_config", "fsdp", "fsdp_");
  ASSERT_EQ(block.size(), 1U);
  EXPECT_EQ(block.at("fsdp_version").whole, 2);
  EXPECT_EQ(block.at("fsdp_version").source.key, "fsdp_version");
}

TEST(YamlBlock, TruthWords) {
  for (const char* word : {"y", "YES", "t", "True", "on", "1", "'yes'"}) {
    EXPECT_EQ(as_truth(read(std::string("a: ") + word).at("a")), true) << word;
  }
  for (const char* word : {"n", "NO", "f", "False", "off", "0", "'off'"}) {
    EXPECT_EQ(as_truth(read(std::string("a: ") + word).at("a")), false) << word;
  }
  for (const char* word : {"FULL_SHARD", "2", "''"}) {
    EXPECT_EQ(as_truth(read(std::string("a: ") + word).at("a")), std::nullopt) << word;
  }
}

TEST(YamlBlock, TruthOfPython) {
  EXPECT_FALSE(is_truthy(read("a: false").at("a")));
  EXPECT_TRUE(is_truthy(read("a: 'false'").at("a")));
  EXPECT_FALSE(is_truthy(read("a: 0").at("a")));
  EXPECT_FALSE(is_truthy(read("a: ''").at("a")));
  EXPECT_FALSE(is_truthy(read("a: []").at("a")));
}

TEST(YamlBlock, NumbersOfYaml11) {
  const YamlBlock block =
      read("a: 010\nb: 0x1F\nc: -0b11\nd: 1.0e+8\ne: 1.5\nf: 09\ng: '1_0'\nh: '1__0'\ni: 1.0e8\nj: 0\n");
  EXPECT_EQ(block.at("a").whole, 8);
  EXPECT_EQ(block.at("b").whole, 31);
  EXPECT_EQ(block.at("c").whole, -3);
  EXPECT_EQ(block.at("d").kind, Kind::kReal);
  EXPECT_EQ(as_number(block.at("d")), 1e8);
  EXPECT_EQ(as_int(block.at("d")), std::nullopt);
  EXPECT_EQ(as_number(block.at("e")), 1.5);
  EXPECT_EQ(block.at("f").kind, Kind::kText);
  EXPECT_EQ(as_int(block.at("g")), 10);
  EXPECT_EQ(as_int(block.at("h")), std::nullopt);
  EXPECT_EQ(block.at("i").kind, Kind::kText);
  EXPECT_EQ(block.at("j").whole, 0);
}

TEST(YamlBlock, MergedMaps) {
  const Setting root = read_yaml(
      "base: &base\n  x: 1\n  y: 2\nother: &other {y: 5, z: 6}\nuser:\n  y: 3\n  <<: [*base, *other]\n", "a.yaml");
  const YamlBlock user = table_of(*find_member(root, "user"), "user");
  EXPECT_EQ(user.at("x").whole, 1);
  EXPECT_EQ(user.at("y").whole, 3);
  EXPECT_EQ(user.at("z").whole, 6);
  EXPECT_EQ(place(user.at("x").source), "a.yaml:2:6: ");
}

TEST(YamlBlock, MustBeAMap) {
  EXPECT_EQ(test::text_of([] { read("[1, 2]"); }), "a.yaml:1:1: `block` must be a map");
  EXPECT_TRUE(read("").empty());
}

}  // namespace
}  // namespace fsdp2
