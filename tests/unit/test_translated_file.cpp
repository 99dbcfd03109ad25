// What `fsdp2 translate` reads and reports, without the program.
#include "plugin/cli/translated_file.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "adapters/config.hpp"
#include "adapters/limits.hpp"
#include "helpers.hpp"
#include "plugin/cli/translation_report.hpp"
#include "registry/host_text.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2 {
namespace {

using cli::translate_file;
using cli::TranslatedFile;
using cli::TranslationRequest;
using test::text_of;

class Translated : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }

  TranslatedFile translate(const std::string& name, const std::string& text, TranslationRequest request = {}) const {
    request.file = write(name, text);
    return translate_file(request);
  }

  std::string fault(const std::string& name, const std::string& text, const TranslationRequest& request = {}) const {
    const std::string sentence = text_of([&] { translate(name, text, request); });
    return sentence.starts_with(folder_) ? sentence.substr(folder_.size() + 1) : sentence;
  }

  static bool says(const std::vector<std::string>& texts, const std::string& part) {
    for (const std::string& text : texts) {
      if (text.find(part) != std::string::npos) return true;
    }
    return false;
  }

  const std::string folder_ = testing::TempDir() + "translated_file";
};

HostKey variable(const std::string& pair) {
  HostKey key = host_key_of(pair);
  key.source.override_text = "--env " + pair;
  return key;
}

constexpr const char* kComposer = "max_duration: 1ba\nfsdp_config:\n  activation_checkpointing: false\n";
constexpr const char* kTitan = "[parallelism]\ndata_parallel_shard_degree = 4\n";

TEST_F(Translated, PrintsWhatTheLibraryReads) {
  const std::string cases = std::string(FSDP2_SOURCE_DIR) + "/tests/cases/dialects";
  size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cases)) {
    const std::string path = entry.path().string();
    const std::string expected = path.substr(0, path.rfind('.')) + ".expected.toml";
    if (!std::filesystem::exists(expected) || path == expected) continue;
    if (test::read_file(expected).find("outcome = \"ok\"") == std::string::npos) continue;
    TranslationRequest request;
    request.file = path;
    const TranslatedFile file = translate_file(request);
    const std::string toml = to_toml(file.config.options);
    const Config again = load_config_text(toml, "printed.toml");
    EXPECT_EQ(again.options, file.config.options) << path;
    request.file = write("printed.toml", toml);
    EXPECT_EQ(to_toml(translate_file(request).config.options), toml) << path;
    ++count;
  }
  EXPECT_GE(count, 9U);
}

TEST_F(Translated, TheEnvironmentCountsWhereItIsAskedFor) {
  setenv("FSDP_VERSION", "2", 1);
  setenv("ACCELERATE_USE_FSDP", "true", 1);
  EXPECT_EQ(translate("c.yaml", kComposer).config.options.version, 1);
  TranslationRequest request;
  request.uses_process_variables = true;
  EXPECT_EQ(translate("c.yaml", kComposer, request).config.options.version, 2);
  const std::string own = "[fsdp]\ndialect = \"composer\"\nconfig = \"c.yaml\"\n";
  EXPECT_EQ(translate("own.toml", own).config.options.version, 1);
  EXPECT_EQ(translate("own.toml", own, request).config.options.version, 2);
  EXPECT_EQ(load_config(folder_ + "/own.toml").options.version, 2);  // the library reads it
  const std::string listed = "ACCELERATE_USE_FSDP=true\nFSDP_OFFLOAD_PARAMS=true\n";
  EXPECT_EQ(translate("a.env", listed).config.options.version, 1);
  const TranslatedFile both = translate("a.env", listed, request);
  EXPECT_EQ(both.config.options.version, 2);
  EXPECT_EQ(place(both.config.sources.at("version")), "the environment: ");
  unsetenv("FSDP_VERSION");
  unsetenv("ACCELERATE_USE_FSDP");
}

TEST_F(Translated, VariablesByName) {
  TranslationRequest request;
  request.variables = {variable("FSDP_VERSION=2")};
  const TranslatedFile composer = translate("c.yaml", kComposer, request);
  EXPECT_EQ(composer.config.options.version, 2);
  EXPECT_TRUE(composer.remarks.size() == 1 && says(composer.remarks, "taken as the dialect composer"));
  const std::string list = "ACCELERATE_USE_FSDP=true\nFSDP_VERSION=1\n";
  const TranslatedFile keys = translate("a.env", list, request);
  EXPECT_EQ(keys.config.options.version, 2);
  EXPECT_EQ(keys.config.sources.at("version").override_text, "--env FSDP_VERSION=2");
  EXPECT_TRUE(says(translate("t.toml", kTitan, request).remarks,
                   "`--env FSDP_VERSION=2` has no effect: beside a file of torchtitan no variables are read"));
  EXPECT_TRUE(says(translate("own.toml", "[fsdp]\n", request).remarks,
                   "has no effect: beside a table [fsdp] without `config` no variables are read"));
  request.variables = {variable("FSDP_VERSIN=2")};
  EXPECT_TRUE(says(translate("c.yaml", kComposer, request).remarks,
                   "beside a file of composer only \"FSDP_VERSION\" is read; did you mean `FSDP_VERSION`?"));
}

TEST_F(Translated, ListsHaveLines) {
  const std::string list = "# mine\nexport ACCELERATE_USE_FSDP=\"true\"\nFSDP_VERSION=2\n";
  const TranslatedFile file = translate("a.env", list + "FSDP_USE_ORIG_PARAMS=1\nFSDP_OFFLAD_PARAMS=1\n");
  EXPECT_NE(file.config.warning.find("`FSDP_USE_ORIG_PARAMS` (line 4)"), std::string::npos) << file.config.warning;
  EXPECT_EQ(file.config.obsolete, std::vector<std::string>{"FSDP_USE_ORIG_PARAMS"});
  EXPECT_TRUE(says(file.config.notes, "a.env:5:1: `FSDP_OFFLAD_PARAMS=1` has no effect"));
  EXPECT_EQ(fault("a.env", list + "FSDP_AUTO_WRAP_POLICY=SIZE_BASD_WRAP\n"),
            "a.env:4:1: `FSDP_AUTO_WRAP_POLICY=SIZE_BASD_WRAP` must be one of \"TRANSFORMER_BASED_WRAP\", "
            "\"SIZE_BASED_WRAP\", \"NO_WRAP\"; did you mean `SIZE_BASED_WRAP`?");
  EXPECT_EQ(translate("k.env", "fsdp_version=2\nreshard_after_forward=False\n").config.options.strategy,
            "shard_grad_op");
  EXPECT_NE(
      fault("k.env", "fsdp_version=2\nreshard_after_forwrd=False\n").find("k.env:2:1: Accelerate's plugin has no"),
      std::string::npos);
  TranslationRequest request;
  request.dialect = "transformers";
  EXPECT_EQ(translate("k.env", "fsdp=\"full_shard\"\nfsdp_config.version=2\n", request).config.options.version, 2);
}

TEST_F(Translated, WhatIsNotClearIsAnError) {
  EXPECT_EQ(fault("a.yaml", "distributed_type: FSDP\nzero_optimization: {stage: 1}\n"),
            "a.yaml: it is not clear whose file this is: accelerate (the key `distributed_type`); deepspeed (the key "
            "`zero_optimization`); say it by --dialect, one of \"accelerate\", \"transformers\", \"torchtitan\", "
            "\"deepspeed\", \"lightning\", \"torch_fsdp1\", \"composer\", \"torchfort\"");
  EXPECT_NE(fault("a.txt", "hello").find("as TOML, YAML or JSON it has no keys at all"), std::string::npos);
  EXPECT_NE(fault("a.toml", "[parallelism\n").find("a.toml:1:13: this is not TOML"), std::string::npos);
}

TEST_F(Translated, OurOwnFile) {
  write("host.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 1, fsdp_use_orig_params: true}\n");
  TranslationRequest request;
  request.version = 2;
  const TranslatedFile file = translate("own.toml", "[fsdp]\nconfig = \"host.yaml\"\nmesh.shard = 2\n", request);
  EXPECT_EQ(file.config.options.version, 2);
  EXPECT_EQ(file.config.options.mesh.shard, 2);
  EXPECT_EQ(file.config.obsolete, std::vector<std::string>{"fsdp_use_orig_params"});
  const TranslatedFile first = translate("own.toml", "[fsdp]\nversion = 1\n", request);
  EXPECT_EQ(first.config.options.version, 2);
  EXPECT_TRUE(says(first.config.notes, "`version = 1` is converted to 2"));
  EXPECT_TRUE(says(translate("own.toml", "[fsdp]\nversion = 1\n").remarks, "--to-version 2 converts it"));
  EXPECT_NE(fault("own.toml", "[fsdp]\nversion = = 1\n").find("own.toml:2:11: this is not TOML"), std::string::npos);
  EXPECT_EQ(fault("own.toml", "[fsdp]\nmesh.shrd = 1\n"),
            "own.toml:2:6: [fsdp] has no key `mesh.shrd`; did you mean `mesh.shard`?");
  request.dialect = "torchtitan";  // a file of both
  EXPECT_EQ(translate("own.toml", std::string(kTitan) + "[fsdp]\nlayout = \"flat\"\n", request).dialect, "torchtitan");
}

TEST_F(Translated, FlagsOfTheHost) {
  TranslationRequest request;
  request.flags = {"--parallelism.data_parallel_shard_degree", "8"};
  EXPECT_EQ(translate("t.toml", kTitan, request).config.options.mesh.shard, 8);
  write("host.toml", kTitan);
  EXPECT_EQ(translate("own.toml", "[fsdp]\nconfig = \"host.toml\"\n", request).config.options.mesh.shard, 8);
  const std::string takes =
      " takes no flags of its host's command line (`--parallelism.data_parallel_shard_degree`); those that do: "
      "\"torchtitan\"";
  EXPECT_EQ(fault("c.yaml", kComposer, request), "dialect `composer`" + takes);
  EXPECT_EQ(fault("k.env", "fsdp_version=2\n", request), "dialect `accelerate`" + takes);
  EXPECT_EQ(fault("own.toml", "[fsdp]\n", request), "a table [fsdp] without another host's file" + takes);
  request.dialect = "composer";
  EXPECT_THROW(translate("c.yaml", kComposer, request), CLI::ValidationError);
}

TEST_F(Translated, LibrariesBringDialects) {
  TranslationRequest request;
  request.plugins = {std::string(FSDP2_ZOO) + "/behaviour.so"};
  request.dialect = "zoo";
  EXPECT_THROW(translate("z.txt", "x\n"), Error);
  const TranslatedFile file = translate("z.txt", "keys\n", request);
  EXPECT_EQ(file.dialect, "zoo");
  EXPECT_TRUE(says(file.remarks, "registers strategy"));
  request.dialect = "zo";
  EXPECT_THROW(translate("z.txt", "keys\n", request), CLI::ValidationError);
  request.plugins = {std::string(FSDP2_ZOO) + "/other_major.so"};
  EXPECT_NE(fault("z.txt", "keys\n", request).find("--plugins: "), std::string::npos);
}

TEST_F(Translated, LargeAndHostileFilesEnd) {
  EXPECT_NE(fault("a.yaml", std::string(kMostHostBytes + 1, 'a')).find("is larger than 1 MiB"), std::string::npos);
  EXPECT_NE(fault("a.yaml", std::string("a\0b", 3)).find("a.yaml:1:2: this is not text in UTF-8"), std::string::npos);
  std::string many;
  for (size_t i = 0; i < limits::kSettings + 1; ++i) many += "FSDP_A" + std::to_string(i) + "=1\n";
  EXPECT_NE(fault("a.env", many).find("there are more than 10000 keys"), std::string::npos);
  std::string nested = "fsdp_version=2\n";
  for (size_t i = 0; i < 70; ++i) nested += i == 0 ? "a" : ".a";
  EXPECT_NE(fault("a.env", nested + "=1\n").find("lie deeper in one another"), std::string::npos);
  EXPECT_NE(fault("o.toml", "[fsdp]\nx = " + std::string(5000, '[')).find("o.toml"), std::string::npos);
}

TEST_F(Translated, Report) {
  const std::string yaml =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true  # slow\n"
      "  fsdp_use_orig_params: false\n  fsdp_min_num_params: 5\n";
  TranslatedFile file = translate("a.yaml", yaml);
  file.name = "a.yaml";
  for (auto& [key, source] : file.config.sources) source.file = "a.yaml";
  const std::string text = cli::difference_text(file);
  EXPECT_NE(text.find("version                2             a.yaml:3 fsdp_version: 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("offload.params         true          a.yaml:4 fsdp_offload_params: true  # slow  false\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("load.mode              \"broadcast\"   default of accelerate "), std::string::npos) << text;
  EXPECT_NE(text.find("loses its meaning: fsdp_use_orig_params\n"), std::string::npos) << text;
  EXPECT_NE(text.find("`fsdp_min_num_params: 5` has no effect without SIZE_BASED_WRAP\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("prefetch"), std::string::npos) << text;  // ours, and not set

  const cli::Json json = cli::translation_json(file);
  EXPECT_EQ(json["options"]["offload"]["params"], true);
  EXPECT_EQ(json["toml"], to_toml(file.config.options));
  for (const auto& key : json["keys"]) {
    if (key["key"] == "offload.params") {
      EXPECT_EQ(key["from"].dump(),
                "{\"file\":\"a.yaml\",\"line\":4,\"column\":24,\"key\":\"fsdp_offload_params\","
                "\"text\":\"fsdp_offload_params: true  # slow\"}");
      EXPECT_EQ(key["default_here"], false);
    }
    if (key["key"] == "load.mode") {
      EXPECT_EQ(key["from"], "default");
    }
  }
  EXPECT_EQ(json["obsolete"].dump(), "[\"fsdp_use_orig_params\"]");
}

TEST_F(Translated, ReportOfOurOwnFile) {
  const TranslatedFile file =
      translate("own.toml", "[fsdp]\nreshard_after_forward = false\nstrategy_options.a = 1\nstrategy = \"x.y\"\n");
  const std::string text = cli::difference_text(file);
  EXPECT_NE(text.find("own.toml:3 strategy_options.a = 1"), std::string::npos) << text;
  const TranslatedFile follows = translate("own.toml", "[fsdp]\nreshard_after_forward = false\n");
  EXPECT_NE(cli::difference_text(follows).find("\"shard_grad_op\"  follows from other keys"), std::string::npos);
}

TEST_F(Translated, ClassesThatAreLeftToTheModelAreAskedFor) {
  const TranslatedFile file = translate("t.json", "{\"fsdp\": true, \"per_device_train_batch_size\": 1}");
  EXPECT_TRUE(says(file.remarks, "needs `wrap.layer_classes` beside it: it must be added to what is printed"));
}

}  // namespace
}  // namespace fsdp2
