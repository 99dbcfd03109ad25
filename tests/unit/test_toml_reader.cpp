#include "registry/toml_reader.hpp"

#include <array>
#include <fstream>

#include "helpers.hpp"
#include "registry/host_text.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::text_of;

Fsdp2Options read(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return read_options(toml, "train.toml", overrides);
}

std::string fault(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return text_of([&] { read(toml, overrides); });
}

TEST(TomlReader, DefaultsWithoutATable) {
  EXPECT_EQ(read("[model]\nscript = 'm.pt'\n"), Fsdp2Options{});
  EXPECT_EQ(read(""), Fsdp2Options{});
}

TEST(TomlReader, ReadsEveryKey) {
  const Fsdp2Options options = read(R"(
[fsdp]
version = 2
strategy = "fsdp2.full_shard"
reshard_after_forward = 4
layout = "per_parameter"
ignored_modules = ["head.*"]
activation_checkpointing = { every = 2 }
plugins = ["libmine.so"]
[fsdp.wrap]
policy = "modules"
modules = ["encoder.layer.*"]
[fsdp.mesh]
replicate = 2
shard = -1
[fsdp.mixed_precision]
param = "bfloat16"
reduce = "float32"
output = "float16"
cast_forward_inputs = false
[fsdp.offload]
params = true
pin_memory = false
[fsdp.prefetch]
forward = 1
backward = 2
[fsdp.gradient]
clip_norm = 1
divide_factor = 2.5
[fsdp.checkpoint]
kind = "full"
[fsdp.load]
mode = "broadcast"
[fsdp.debug]
order_check = -1
force_collectives = true
timeout_s = 12.5
)");
  Fsdp2Options expected;
  expected.strategy = "fsdp2.full_shard";
  expected.reshard_after_forward = int64_t{4};
  expected.layout = Layout::kPerParameter;
  expected.ignored_modules = {"head.*"};
  expected.activation_checkpointing = {true, 2, {}};
  expected.plugins = {"libmine.so"};
  expected.wrap = {WrapPolicy::kModules, {}, std::nullopt, {"encoder.layer.*"}};
  expected.mesh = {2, -1};
  expected.mixed_precision = {DType::kBFloat16, DType::kFloat32, DType::kFloat16, false};
  expected.offload = {true, false};
  expected.prefetch = {1, 2};
  expected.gradient = {1.0, 2.5};
  expected.checkpoint_kind = CheckpointKind::kFull;
  expected.load_mode = LoadMode::kBroadcast;
  expected.debug = {-1, true, 12.5};
  EXPECT_EQ(options, expected);
}

TEST(TomlReader, FormsOfATableAreEqual) {
  const Fsdp2Options dotted = read("[fsdp]\nwrap.policy = 'transformer'\nwrap.layer_classes = ['A', 'B']\n");
  EXPECT_EQ(dotted, read("[fsdp.wrap]\npolicy = 'transformer'\nlayer_classes = ['A', 'B']\n"));
  EXPECT_EQ(dotted, read("[fsdp]\nwrap = { policy = 'transformer', layer_classes = ['A', 'B'] }\n"));
  EXPECT_EQ(dotted, read("fsdp.wrap.policy = 'transformer'\nfsdp.wrap.layer_classes = ['A', 'B']\n"));
  EXPECT_EQ(dotted, read("fsdp = { wrap = { policy = 'transformer', layer_classes = ['A', 'B'] } }\n"));
}

TEST(TomlReader, UnknownKey) {
  EXPECT_EQ(fault("[fsdp]\nstrategi = 'full_shard'\n"),
            "train.toml:2:1: [fsdp] has no key `strategi`; did you mean `strategy`?");
  EXPECT_EQ(fault("[fsdp]\nwrap.polcy = 'none'\n"),
            "train.toml:2:6: [fsdp] has no key `wrap.polcy`; did you mean `wrap.policy`?");
  EXPECT_EQ(fault("[fsdp.warp]\npolicy = 'none'\n"),
            "train.toml:2:1: [fsdp] has no key `warp.policy`; did you mean `wrap.policy`?");
  EXPECT_EQ(fault("[fsdp]\nbanana = 1\n"), "train.toml:2:1: [fsdp] has no key `banana`");
  EXPECT_EQ(fault("[fsdp]\n[fsdp.banana]\n"), "train.toml:2:7: [fsdp] has no key `banana`");
  EXPECT_EQ(fault("[fsdp]\nwrap = 'none'\n"), "train.toml:2:1: `wrap` is a table of keys, not a value");
}

TEST(TomlReader, TheFirstFaultOfTheFileIsReported) {
  EXPECT_EQ(fault("[fsdp]\nzebra = 1\nbanana = 1\n"), "train.toml:2:1: [fsdp] has no key `zebra`");
}

TEST(TomlReader, DetailsOfAnError) {
  const Error error = error_of([] { read("[fsdp]\n  strategi = 'full_shard'\n"); });
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  EXPECT_EQ(error.details().file, "train.toml");
  EXPECT_EQ(error.details().line, 2);
  EXPECT_EQ(error.details().column, 3);
  EXPECT_EQ(error.details().key, "strategi");
  EXPECT_EQ(error.details().nearest, "strategy");
}

TEST(TomlReader, WrongType) {
  EXPECT_EQ(fault("[fsdp]\nlayout = 3\n"),
            R"(train.toml:2:10: `layout` must be "ragged", "per_parameter" or "flat", not a whole number)");
  EXPECT_EQ(fault("[fsdp]\noffload.params = 'yes'\n"),
            "train.toml:2:18: `offload.params` must be true or false, not a string");
  EXPECT_EQ(fault("[fsdp]\nwrap.min_num_params = 1e8\n"),
            "train.toml:2:23: `wrap.min_num_params` must be a whole number, 0 or more, not a decimal number");
  EXPECT_EQ(fault("[fsdp]\nplugins = ['a', 1]\n"),
            "train.toml:2:11: `plugins` must be a list of strings, not a list that holds something else");
  EXPECT_EQ(fault("[fsdp]\nstrategy = { name = 'x' }\n"), "train.toml:2:14: [fsdp] has no key `strategy.name`");
  EXPECT_EQ(fault("[fsdp]\nversion = 1979-05-27\n"), "train.toml:2:11: `version` must be 1 or 2, not a date or time");
  EXPECT_EQ(fault("fsdp = 1\n"), "train.toml:1:8: `fsdp` must be a table, [fsdp]");
}

TEST(TomlReader, OutOfRange) {
  EXPECT_EQ(fault("[fsdp]\nversion = 3\n"), "train.toml:2:11: `version` must be 1 or 2, not 3");
  EXPECT_EQ(fault("[fsdp]\nmesh.shard = 0\n"),
            "train.toml:2:14: `mesh.shard` must be a number of ranks, 1 or more, or -1 for the rest, not 0");
  EXPECT_EQ(fault("[fsdp]\nprefetch.forward = -1\n"),
            "train.toml:2:20: `prefetch.forward` must be a whole number, 0 or more, not -1");
  EXPECT_EQ(fault("[fsdp]\ndebug.timeout_s = 0\n"),
            "train.toml:2:19: `debug.timeout_s` must be a number above 0, not 0.000000");
  EXPECT_EQ(fault("[fsdp]\nreshard_after_forward = 0\n"),
            R"(train.toml:2:25: `reshard_after_forward` must be "auto", true, false or a number of ranks, 1 or more, )"
            "not 0");
  EXPECT_EQ(fault("[fsdp]\nlayout = 'raged'\n"),
            R"(train.toml:2:10: `layout` must be "ragged", "per_parameter" or "flat", not "raged"; )"
            "did you mean `ragged`?");
  EXPECT_EQ(fault("[fsdp]\nwrap.policy = 'modules'\nwrap.modules = []\n"),
            "train.toml:3:16: `wrap.modules` must be a list of strings, not empty, not an empty list");
}

TEST(TomlReader, UnknownStrategy) {
  const std::string text = fault("[fsdp]\nstrategy = 'fsdp2.ful_shard'\n");
  EXPECT_NE(text.find("train.toml:2:12: `strategy` must be \"full_shard\""), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean `fsdp2.full_shard`?"), std::string::npos) << text;
  EXPECT_EQ(read("[fsdp]\nstrategy = 'acme.mine'\n").strategy, "acme.mine");
}

TEST(TomlReader, NotToml) {
  const Error error = error_of([] { read("[fsdp]\nversion = = 2\n"); });
  EXPECT_EQ(std::string(error.what()).find("train.toml:2:"), 0U) << error.what();
  EXPECT_EQ(error.details().line, 2);
}

TEST(TomlReader, MissingFile) {
  const Error error = error_of([] { read_given_file("/nowhere/train.toml"); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_STREQ(error.what(), "/nowhere/train.toml: cannot read this file");
}

TEST(TomlReader, AFolder) {
  EXPECT_EQ(text_of([] { read_given_file("/usr"); }), "/usr: this is a folder, not a file");
}

TEST(TomlReader, OnlyTextIsRead) {
  EXPECT_EQ(fault("[fsdp]\nstrategy = '\xFF'\n"), "train.toml:2:13: this is not text in UTF-8");
  EXPECT_EQ(fault("", {"version=2", "strategy=\xC3"}), "override 2:1:10: this is not text in UTF-8");
}

TEST(TomlReader, NoNullCharacters) {
  EXPECT_EQ(
      fault("[fsdp]\nwrap.policy = \"none\\u0000\"\n"),
      "train.toml:2:15: `wrap.policy` must be \"transformer\", \"size\", \"modules\", \"every\" or \"none\", not a "
      "string with a null character");
  EXPECT_NE(fault("[fsdp]\nwrap.modules = [\"a\\u0000\"]\n").find("`wrap.modules` must be"), std::string::npos);
  EXPECT_EQ(fault("[fsdp]\nstrategy_options.\"a\\u0000\" = 1\n"),
            "train.toml:2:18: a key of [fsdp] has a null character");
  EXPECT_EQ(read_value("\"a\\u0000\""), std::nullopt);
}

TEST(TomlReader, LargeText) {
  const std::string large = "a = '" + std::string(kMostHostBytes, 'x') + "'\n";
  EXPECT_EQ(fault(large), "train.toml: the text is larger than 1 MiB, which no configuration is");
  EXPECT_EQ(fault("", {large}), "override 1: the text is larger than 1 MiB, which no configuration is");
  const std::string file = testing::TempDir() + "fsdp2_large.toml";
  std::ofstream(file) << large;
  EXPECT_EQ(text_of([&] { read_given_file(file); }),
            file + ": this file is larger than 1 MiB, which no configuration is");
  // One without an end.
  EXPECT_EQ(text_of([] { read_given_file("/dev/zero"); }),
            "/dev/zero: this file is larger than 1 MiB, which no configuration is");
}

TEST(TomlReader, DeepValuesOutsideAFile) {
  std::string deep = "{";
  for (int i = 0; i < 400'000; ++i) deep += "a.";
  deep += "a = 1}";
  EXPECT_EQ(read_value(deep), std::nullopt);
  const std::string text = fault("", {"wrap=" + deep});
  EXPECT_NE(text.find("the value is not TOML: keys and brackets are nested more than 500 deep"), std::string::npos);
}

TEST(Overrides, WinOverTheFile) {
  const Fsdp2Options options = read("[fsdp]\nstrategy = 'full_shard'\nwrap.policy = 'every'\n",
                                    {"strategy=shard_grad_op", "debug.timeout_s = 5", "wrap.policy=\"none\""});
  EXPECT_EQ(options.strategy, "shard_grad_op");
  EXPECT_EQ(options.debug.timeout_s, 5);
  EXPECT_EQ(options.wrap.policy, WrapPolicy::kNone);
}

TEST(Overrides, ANewPolicyDropsTheKeysOfTheOld) {
  const std::string toml = "[fsdp]\nwrap.policy = 'transformer'\nwrap.layer_classes = ['A']\n";
  EXPECT_EQ(read(toml, {"wrap.policy=size", "wrap.min_num_params=10"}).wrap,
            (WrapOptions{WrapPolicy::kSize, {}, 10, {}}));
  EXPECT_EQ(read(toml, {"wrap.modules=['a.*']", "wrap.policy=modules"}).wrap,
            (WrapOptions{WrapPolicy::kModules, {}, std::nullopt, {"a.*"}}));
}

TEST(Overrides, TablesAndBothFormsOfCheckpointing) {
  const std::string toml = "[fsdp]\nactivation_checkpointing = true\n";
  EXPECT_EQ(read(toml, {"activation_checkpointing={every=3}"}).activation_checkpointing,
            (ActivationCheckpointingOptions{true, 3, {}}));
  EXPECT_EQ(
      read("[fsdp]\nactivation_checkpointing.every = 2\n", {"activation_checkpointing=false"}).activation_checkpointing,
      ActivationCheckpointingOptions{});
}

TEST(Overrides, ErrorsNameTheOverride) {
  EXPECT_EQ(fault("", {"strategi=full_shard"}),
            "override `strategi=full_shard`: [fsdp] has no key `strategi`; did you mean `strategy`?");
  EXPECT_EQ(fault("", {"version=two"}), "override `version=two`: `version` must be 1 or 2, not a string");
  EXPECT_EQ(fault("", {"version"}), "override `version`: an override is written key=value, with a key of [fsdp]");
  EXPECT_EQ(fault("", {"version="}), "override `version=`: the override has no value");
  EXPECT_EQ(fault("", {"wrap.modules=['a'"}).find("override `wrap.modules=['a'`: the value is not TOML: "), 0U);
  const Error error = error_of([] { read("", {"version=1\nlayout='flat'"}); });
  EXPECT_EQ(error.details().line, std::nullopt);
}

}  // namespace
}  // namespace fsdp2
