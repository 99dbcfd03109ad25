// Strategies and adapters from libraries: what they see, what they give, and what is refused.
#include "registry/extensions.hpp"

#include <cstdlib>
#include <filesystem>

#include "adapters/config.hpp"
#include "helpers.hpp"
#include "plugin/wrap/planner.hpp"
#include "registry/toml_reader.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::small_model;
using test::text_of;
using test::TreeBuilder;

std::string library(const std::string& name) {
  return std::string(FSDP2_ZOO) + "/" + name + ".so";
}

/// With the library that does what it is told, on line 2.
Config config_with(const std::string& body, const std::string& name = "behaviour") {
  return load_config_text("[fsdp]\nplugins = ['" + library(name) + "']\n" + body, "t.toml");
}

Config told(const std::string& does, const std::string& more = "") {
  return config_with("strategy = 'zoo.obeys'\nstrategy_options.does = '" + does + "'\n" + more);
}

Plan plan_of(const Config& config, int64_t world = 2) {
  return make_plan(small_model().tree(), config, world);
}

std::string fault_of(const std::string& does) {
  const std::string text = text_of([&] { plan_of(told(does)); });
  const std::string start = "t.toml:3:12: strategy \"zoo.obeys\" (" + library("behaviour") + "): it ";
  EXPECT_EQ(text.find(start), 0U) << text;
  return text.substr(std::min(text.size(), start.size()));
}

// Small models have these modules: 0 root, 1 embed, 2 layers, 3 layers.0, 4 and 5 its up and down, 6 layers.1, 7 and 8,
// 9 head.

TEST(ExtensionStrategy, ChoosesUnitsAndWhatReshards) {
  const Plan plan = plan_of(told("choose 6 0 3 1 9 0"));
  EXPECT_EQ(plan.strategy, "zoo.obeys");
  ASSERT_EQ(plan.units.size(), 4U);
  const std::vector<std::string> paths{"layers.0", "layers.1", "head", ""};
  const std::vector<bool> reshards{true, false, false, false};
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(plan.units[i].path, paths[i]);
    EXPECT_EQ(plan.units[i].reshard_after_forward, reshards[i]) << paths[i];
  }
  EXPECT_EQ(plan.units[0].parent, 3U);
  EXPECT_EQ(plan.mesh, (Mesh{1, 2}));

  // Beside that it is the plan of our own strategy with the same units.
  Config ours = load_config_text("[fsdp]\nwrap.policy = 'modules'\nwrap.modules = ['layers.*', 'head']\n", "t.toml");
  Plan expected = plan_of(ours);
  expected.strategy = plan.strategy;
  for (size_t i = 0; i < expected.units.size(); ++i) expected.units[i].reshard_after_forward = reshards[i];
  EXPECT_EQ(plan, expected);
}

TEST(ExtensionStrategy, TheRootFollowsTheOptionsUntilItIsChosen) {
  EXPECT_FALSE(plan_of(told("choose")).units.back().reshard_after_forward);
  EXPECT_TRUE(plan_of(told("choose", "reshard_after_forward = true")).units.back().reshard_after_forward);
  EXPECT_FALSE(plan_of(told("choose", "reshard_after_forward = false")).units.back().reshard_after_forward);
  EXPECT_TRUE(plan_of(told("choose 0 1")).units.back().reshard_after_forward);
}

/// Of each unit its own; 1 is "reshards", as it was before there were numbers.
TEST(ExtensionStrategy, BlocksOfRanks) {
  const Plan plan = plan_of(told("choose 3 2 6 4 9 1", "reshard_after_forward = 2"), 4);
  const std::vector<int64_t> blocks{2, 0, 0, 2};
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(plan.units[i].reshard_to, blocks[i]) << plan.units[i].path;
    EXPECT_TRUE(plan.units[i].reshard_after_forward);
  }
  EXPECT_EQ(plan_of(told("mesh 4 1 choose 3 2"), 4).units[0].reshard_to, 0);
}

TEST(ExtensionStrategy, ItsMeshIsNamedWhereAnOptionDoesNotFitIt) {
  const std::string text = text_of([&] { plan_of(told("mesh 2 2 choose 3 1", "reshard_after_forward = 4"), 4); });
  EXPECT_NE(text.find("reshard_after_forward = 4, which does not divide the 2 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("set a mesh of 2 x 2)"), std::string::npos) << text;
}

TEST(ExtensionStrategy, CopiesEverywhere) {
  const Plan plan = plan_of(told("mesh 4 1 choose 3 1"), 4);
  EXPECT_EQ(plan.mesh, (Mesh{4, 1}));
  ASSERT_EQ(plan.units.size(), 2U);
  EXPECT_FALSE(plan.units[0].reshard_after_forward);
}

TEST(ExtensionStrategy, SeesTheModelAndTheOptions) {
  TreeBuilder model("Net");
  const size_t inner = model.module(0, "inner", "Block");
  model.module(0, "again", "Block", true, inner);
  const size_t list = model.module(0, "list", "ModuleList", false);
  const size_t spare = model.module(list, "0", "Spare");
  model.entry(spare).called = false;
  const size_t weight = model.parameter(inner, "weight", {4, 2}, DType::kBFloat16);
  model.tie(weight, spare, "tied");
  model.parameter(0, "scale", {3}, DType::kFloat64, false);
  const Config config = told("note",
                             "strategy_options.number = 7\nstrategy_options.real = 0.5\nstrategy_options.flag = true\n"
                             "wrap = { policy = 'modules', modules = ['inner'] }");
  const Plan plan = make_plan(model.tree(), config, 3);
  const std::vector<std::string> expected{
      "3 = 1 x 3",
      to_toml(config.options),
      "does note",
      "number 7",
      "real 0.5",
      "flag true",
      "absent null",
      "0  Net -1 0 1101 77",
      "0 inner Block 0 1 1101 77",
      "0 again Block 0 1 1101 77",
      "0 list ModuleList 0 3 0100 77",
      "0 list.0 Spare 3 4 1000 77",
      "0 inner.weight list.0.tied 4 2 bfloat16 2 1 held 1 4 read 1 4 77",
      "0 scale 3 float64 8 0 held 0 read 0 77",
      "refused",
  };
  EXPECT_EQ(plan.notes, expected);
}

TEST(ExtensionStrategy, AModuleThatNothingCallsIsPassedOver) {
  TreeBuilder model = small_model();
  model.entry(9).called = false;
  const Plan plan = make_plan(model.tree(), told("choose 9 1"), 2);
  EXPECT_EQ(plan.units.size(), 1U);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_EQ(plan.notes[0], "no method of the model calls `head`, so it is no unit: its parameters belong to the root");
}

TEST(ExtensionStrategy, WhatItMayNotChooseIsNamed) {
  EXPECT_EQ(fault_of("choose 10 0"), "chose module 10, and there are 10, counted from 0");
  EXPECT_EQ(fault_of("choose 2 0"), "chose `layers`, a container without a forward, which cannot be a unit");
  EXPECT_EQ(fault_of("choose 3 0 3 1"), "chose `layers.0` twice");
  EXPECT_EQ(fault_of("choose 0 0 0 0"), "chose the root twice");
  EXPECT_EQ(
      fault_of("choose 3 7"),
      "gave `layers.0` reshard_after_forward = 7, which does not divide the 2 ranks that shard a parameter; 1 or 2 "
      "would");
  EXPECT_EQ(fault_of("choose 3 -1"),
            "gave `layers.0` reshard_after_forward = -1; 0 (stays whole), 1 (reshards) and numbers of ranks are "
            "accepted");
  EXPECT_EQ(fault_of("mesh 2 3"), "asked for a mesh of 2 x 3, and there are 2 ranks");
  EXPECT_EQ(fault_of("mesh 0 2"), "asked for a mesh of 0 x 2, and there are 2 ranks");
  EXPECT_EQ(fault_of("mesh 4294967296 4294967296"),
            "asked for a mesh of 4294967296 x 4294967296, and there are 2 ranks");
  EXPECT_EQ(plan_of(told("mesh 2 2"), 4).mesh, (Mesh{2, 2}));

  TreeBuilder model = small_model();
  model.module(0, "shared", "Block", true, 3);
  const Error twice = error_of([&] { make_plan(model.tree(), told("choose 3 0 10 0"), 2); });
  EXPECT_NE(std::string(twice.what()).find("it chose `shared` and `layers.0`, which are one module"), std::string::npos)
      << twice.what();
  EXPECT_EQ(twice.details().module, "shared");
  model.entry(9).frozen = CodePlace{"net.py", 3};
  const Error frozen = error_of([&] { make_plan(model.tree(), told("choose 9 0"), 2); });
  EXPECT_NE(std::string(frozen.what()).find("`head` was frozen by torch.jit.freeze (net.py, line 3)"),
            std::string::npos)
      << frozen.what();
}

TEST(ExtensionStrategy, FaultsOfTheLibraryAreContained) {
  EXPECT_EQ(fault_of("throw"), "threw an exception: out of paint");
  EXPECT_EQ(fault_of("throw_number"), "threw an exception of an unknown type");
  EXPECT_EQ(fault_of("return"), "returned 5 without a reason");
  const std::string name = "strategy \"zoo.obeys\" (" + library("behaviour") + "): ";
  EXPECT_EQ(text_of([&] { plan_of(told("short")); }),
            "t.toml:3:12: " + name +
                "fsdp2_unit_choice.struct_size is 8, expected at least 24: set it to sizeof(fsdp2_unit_choice)");
  EXPECT_EQ(text_of([&] { plan_of(told("null")); }), "t.toml:3:12: " + name + "fsdp2_unit_choice is null");
  const Error failed = error_of([&] { plan_of(told("fail 4")); });
  EXPECT_EQ(failed.what(), "t.toml:4:25: " + name + "the model is too green");
  EXPECT_EQ(failed.code(), ErrorCode::kUnsupported);
  EXPECT_EQ(failed.details().key, "strategy_options.does");
  EXPECT_EQ(error_of([&] { plan_of(told("fail 99")); }).code(), ErrorCode::kInternal);
}

TEST(ExtensionStrategy, NamesThatThereAreNot) {
  EXPECT_EQ(text_of([&] { plan_of(config_with("strategy = 'zoo.obey'")); }),
            "t.toml:3:12: `strategy = \"zoo.obey\"` is not a strategy that is registered; accepted now: "
            "\"fsdp2.full_shard\", \"fsdp2.shard_grad_op\", \"fsdp2.hybrid_shard\", \"fsdp2.hybrid_shard_zero2\", "
            "\"fsdp2.no_shard\", \"zoo.obeys\"; did you mean "
            "`zoo.obeys`?");
  EXPECT_EQ(text_of([&] { plan_of(told("choose", "strategy_options.numbr = 3")); }),
            "t.toml:5:26: strategy \"zoo.obeys\" has no option `numbr`; it has \"does\", \"number\", \"real\", "
            "\"flag\"; did you mean `number`?");
  EXPECT_EQ(text_of([&] { plan_of(config_with("strategy = 'zoo.other'\nstrategy_options.a = 3", "sound")); }),
            "t.toml:4:22: strategy \"zoo.other\" has no option `a`; it has none");
}

TEST(OwnOptions, ArePlainValuesOfAStrategyFromOutside) {
  EXPECT_EQ(text_of([] { read_options("[fsdp]\nstrategy_options.a = 3\n", "t.toml"); }),
            "t.toml:2:22: `strategy_options.a` goes with a strategy from one of `plugins` only, and the strategy is "
            "\"full_shard\"");
  const std::string start = "[fsdp]\nstrategy = 'a.b'\n";
  EXPECT_EQ(text_of([&] { read_options(start + "strategy_options.a = ['x']\n", "t.toml"); }),
            "t.toml:3:22: `strategy_options.a` must be true or false, a number or a string, not a list of strings");
  EXPECT_EQ(text_of([&] { read_options(start + "strategy_options.a.b = 3\n", "t.toml"); }),
            "t.toml:3:20: [fsdp] has no key `strategy_options.a.b`");
  EXPECT_EQ(text_of([&] { read_options(start + "strategy_options = 3\n", "t.toml"); }),
            "t.toml:3:1: `strategy_options` is a table of keys, not a value");
  EXPECT_NO_THROW(read_options("[fsdp]\nstrategy_options = {}\n", "t.toml"));
  const std::vector<std::string> overrides{"strategy_options.c=word"};
  const Fsdp2Options options =
      read_options(start + "strategy_options = { a = 1, b = 2.5, d = false, c = 'x' }\n", "t.toml", overrides);
  EXPECT_EQ(to_toml(options),
            "[fsdp]\nversion = 2\nstrategy = \"a.b\"\nreshard_after_forward = \"auto\"\nwrap.policy = \"none\"\n"
            "strategy_options.a = 1\nstrategy_options.b = 2.5\nstrategy_options.c = \"word\"\n"
            "strategy_options.d = false\n");
  EXPECT_EQ(read_options(to_toml(options)), options);
  const std::vector<std::string> ours{"strategy=full_shard"};
  EXPECT_TRUE(read_options(start + "strategy_options.a = 1\n", "t.toml", ours).strategy_options.empty())
      << "a command line cannot take keys away";
}

class ExtensionFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "fsdp2_extensions";
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(library("sound"), folder_ + "/here.so",
                               std::filesystem::copy_options::overwrite_existing);
  }
  void TearDown() override {
    unsetenv("FSDP2_PLUGINS");  // NOLINT(concurrency-mt-unsafe)
    std::filesystem::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text) {
    return test::write_file(folder_ + "/" + name, text);
  }

  Config translated(const std::string& text, const std::string& more = "") {
    const std::string path = write("host.txt", text);
    return config_with("dialect = 'zoo'\nconfig = '" + path + "'\n" + more);
  }

  std::string folder_;
};

TEST_F(ExtensionFiles, PathsStartAtTheFolderOfTheFile) {
  const std::string toml = write("t.toml", "[fsdp]\nplugins = ['here.so', './here.so']\nstrategy = 'zoo.other'\n");
  const Config config = load_config(toml);
  ASSERT_EQ(config.extensions.strategies().size(), 1U) << "one library, named twice";
  EXPECT_EQ(config.options.plugins[0], folder_ + "/here.so");
  EXPECT_EQ(config.notes, (std::vector<std::string>{"plugins: zoo 1.0 (" + folder_ +
                                                    "/here.so) registers strategy \"zoo.other\" dialect "
                                                    "\"zoo_other\""}));
  EXPECT_EQ(config_with("").notes,
            (std::vector<std::string>{"plugins: behaviour 3.4 (" + library("behaviour") +
                                      ") registers strategy \"zoo.obeys\" (does what `does` says) dialect \"zoo\" "
                                      "(lines of keys)"}));
  // Printed and read elsewhere they are the same.
  EXPECT_EQ(load_config_text(to_toml(config.options), "<text>").options, config.options);
  EXPECT_EQ(plan_of(config).strategy, "zoo.other");
}

TEST_F(ExtensionFiles, ThoseOfTheEnvironmentAreOpenedToo) {
  const std::string listed = library("behaviour") + "::" + folder_ + "/here.so";
  setenv("FSDP2_PLUGINS", listed.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  const Config config = load_config_text("[fsdp]\nstrategy = 'zoo.other'\n", "t.toml");
  EXPECT_EQ(config.extensions.strategies().size(), 2U);
  EXPECT_TRUE(config.options.plugins.empty());
  EXPECT_EQ(plan_of(config).strategy, "zoo.other");
  setenv("FSDP2_PLUGINS", (folder_ + "/nothing.so").c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(text_of([] { load_config_text("", "t.toml"); }).find("FSDP2_PLUGINS: " + folder_ + "/nothing.so: cannot"),
            0U);
}

TEST_F(ExtensionFiles, AnAdapterGivesKeys) {
  const Config config = translated(
      "key wrap.policy 'size'\nkey wrap.min_num_params 1_000\nold cpu_cores\nold wind\nversion\n"
      "key debug.timeout_s 7\n",
      "debug.timeout_s = 9\nversion = 2\n");
  EXPECT_EQ(config.options.wrap.policy, WrapPolicy::kSize);
  EXPECT_EQ(config.options.wrap.min_num_params, 1000);
  EXPECT_EQ(config.options.debug.timeout_s, 9) << "the key beside the file wins";
  EXPECT_EQ(config.warning, folder_ + "/host.txt: obsolete, to be removed: `cpu_cores` (line 3), `wind` (line 4)");
  ASSERT_EQ(config.notes.size(), 2U);
  EXPECT_EQ(config.notes[1], folder_ + "/host.txt to version 2");
  EXPECT_EQ(translated("version\n").notes[1], folder_ + "/host.txt to version 0");
}

TEST_F(ExtensionFiles, FaultsOfAnAdapterAreNamed) {
  const std::string file = folder_ + "/host.txt";
  const std::string name = "adapter \"zoo\" (" + library("behaviour") + "): it ";
  const auto fault = [&](const std::string& text) { return text_of([&] { translated(text); }); };
  EXPECT_EQ(fault("\nkey wrap.polcy 'size'\n"),
            file + ":2:5: " + name + "gave `wrap.polcy`, which is no key of [fsdp]; did you mean `wrap.policy`?");
  EXPECT_EQ(fault("key wrap.policy size\n"), file + ":1:5: " + name + "gave `wrap.policy` = size, which is not TOML");
  EXPECT_EQ(fault("key wrap.policy 3\n"),
            file +
                ":1:5: `my_wrap.policy` must be \"transformer\", \"size\", \"modules\", \"every\" or \"none\", not a "
                "whole number");
  EXPECT_EQ(fault("old x\nfail lr\n"), file + ":2:6: cannot do this");
  EXPECT_EQ(fault("throw\n"), name + "threw an exception: out of ink");
  EXPECT_EQ(fault("return\n"), name + "returned 3 without a reason");
  EXPECT_EQ(text_of([&] { config_with("dialect = 'zo'\nconfig = '" + file + "'"); }),
            "t.toml:3:11: no dialect is called `zo`; accepted now: \"accelerate\", \"transformers\", \"torchtitan\", "
            "\"deepspeed\", \"lightning\", \"torch_fsdp1\", \"composer\", \"torchfort\", \"zoo\"; did you mean `zoo`?");
}

TEST(ExtensionZoo, WhatDoesNotFitIsRefusedWithAReason) {
  struct Case {
    const char* name;
    const char* text;
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  for (const Case& c : {
           Case{"no_export", "is no extension: it does not export fsdp2_extension_get"},
           Case{"null_table", "has no table for ABI 1: rebuild it with this plugin's fsdp2/extension.h",
                ErrorCode::kVersionMismatch},
           Case{"other_major", "speaks ABI 7.0, this plugin 1.1: rebuild it with this plugin's fsdp2/extension.h",
                ErrorCode::kVersionMismatch},
           Case{"short_table",
                "fsdp2_extension.struct_size is 24, expected at least 64: set it to sizeof(fsdp2_extension)"},
           Case{"unnamed", "its fsdp2_extension has no name"},
           Case{"short_strategy",
                "fsdp2_strategy.struct_size is 16, expected at least 56: set it to sizeof(fsdp2_strategy)"},
           Case{"unnamed_strategy", "one of its strategies has no name"},
           Case{"no_plan", "its strategy \"zoo.other\" has no function `plan`"},
           Case{"no_prefix", "its strategy \"mine\" needs a prefix of its own, as in \"acme.by_bytes\""},
           Case{"our_prefix",
                "its strategy \"fsdp2.mine\" has the prefix of this plugin's own strategies; take another one"},
           Case{"unnamed_dialect", "one of its adapters has no dialect"},
           Case{"no_translate", "its adapter \"zoo_other\" has no function `translate`"},
       }) {
    const Error error = error_of([&] { config_with("", c.name); });
    EXPECT_EQ(error.what(), "t.toml:2:11: " + library(c.name) + ": " + c.text);
    EXPECT_EQ(error.code(), c.code) << c.name;
    EXPECT_EQ(error.details().key, "plugins");
  }
  EXPECT_NO_THROW(config_with("", "sound"));
}

TEST(ExtensionZoo, NamesThatAreTaken) {
  const auto with_both = [](const std::string& name) {
    return text_of([&] {
      load_config_text("[fsdp]\nplugins = ['" + library("behaviour") + "', '" + library(name) + "']\n", "t.toml");
    });
  };
  const std::string owner = " is registered already, by " + library("behaviour");
  EXPECT_EQ(with_both("same_strategy"),
            "t.toml:2:11: " + library("same_strategy") + ": its strategy \"zoo.obeys\"" + owner);
  EXPECT_EQ(with_both("same_dialect"), "t.toml:2:11: " + library("same_dialect") + ": its dialect \"zoo\"" + owner);
  EXPECT_EQ(text_of([] { config_with("", "our_dialect"); }),
            "t.toml:2:11: " + library("our_dialect") +
                ": its dialect \"accelerate\" is one of this plugin; take another name");
}

TEST(ExtensionZoo, WhatIsNoLibrary) {
  const std::string missing = library("nothing");
  const Error error = error_of([&] { config_with("", "nothing"); });
  EXPECT_EQ(error.what(), "t.toml:2:11: " + missing + ": cannot be loaded: " + missing +
                              ": cannot open shared object file: No such file or directory");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  const std::string text = test::write_file(testing::TempDir() + "fsdp2_text.so", "no library\n");
  EXPECT_EQ(text_of([&] { load_config_text("[fsdp]\nplugins = ['" + text + "']\n", "t.toml"); }),
            "t.toml:2:11: " + text + ": cannot be loaded: " + text + ": file too short");
  std::filesystem::remove(text);
}

}  // namespace
}  // namespace fsdp2
