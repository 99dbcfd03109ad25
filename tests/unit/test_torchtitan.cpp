#include "adapters/adapters.hpp"
#include "helpers.hpp"
#include "registry/config.hpp"
#include "registry/mesh.hpp"
#include "registry/toml_reader.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::mesh_in;
using test::notes_name;
using test::strategy_of;
using test::text_of;
using test::value_of;

Translation titan(const std::string& toml, const std::vector<std::string>& flags = {}) {
  TranslationContext context;
  context.flags = flags;
  return translate_torchtitan(toml, "t.toml", context);
}

std::string titan_error(const std::string& toml, const std::vector<std::string>& flags = {}) {
  return text_of([&] { titan(toml, flags); });
}

TEST(Torchtitan, Defaults) {
  const Translation translation = titan("[model]\nname = 'llama3'\n");
  EXPECT_EQ(value_of(translation, "version"), "2");
  EXPECT_EQ(strategy_of(translation), "full_shard auto");
  EXPECT_EQ(mesh_in(translation), "1 x -1");
  EXPECT_EQ(value_of(translation, "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(value_of(translation, "mixed_precision.reduce"), "float32");
  EXPECT_EQ(value_of(translation, "gradient.clip_norm"), "1.0");
  EXPECT_EQ(value_of(translation, "activation_checkpointing"), "true");
  EXPECT_EQ(value_of(translation, "checkpoint.kind"), "sharded");
  EXPECT_EQ(translation.given.size(), 10U);
  EXPECT_TRUE(translation.warning.empty());
  EXPECT_TRUE(notes_name(translation, "activation_checkpoint.mode"));
}

TEST(Torchtitan, StrategyFollowsMeshAndReshardWord) {
  struct Case {
    const char* keys;
    const char* strategy;
    const char* mesh;
  };
  for (const Case& c :
       {Case{"fsdp_reshard_after_forward = 'default'", "full_shard auto", "1 x -1"},
        Case{"fsdp_reshard_after_forward = 'always'", "full_shard true", "1 x -1"},
        Case{"fsdp_reshard_after_forward = 'never'", "shard_grad_op false", "1 x -1"},
        Case{"data_parallel_shard_degree = 4", "full_shard auto", "1 x 4"},
        Case{"data_parallel_shard_degree = 1", "no_shard false", "1 x 1"},
        Case{"data_parallel_replicate_degree = 2", "hybrid_shard auto", "2 x -1"},
        Case{"data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 1", "no_shard false", "2 x 1"},
        Case{"data_parallel_replicate_degree = 2\nfsdp_reshard_after_forward = 'always'", "hybrid_shard true",
             "2 x -1"},
        Case{"data_parallel_replicate_degree = 2\nfsdp_reshard_after_forward = 'never'", "hybrid_shard_zero2 false",
             "2 x -1"}}) {
    for (const char* section : {"[parallelism]\n", "[training]\n"}) {
      const Translation translation = titan(std::string(section) + c.keys);
      EXPECT_EQ(strategy_of(translation), c.strategy) << c.keys;
      EXPECT_EQ(mesh_in(translation), c.mesh) << c.keys;
    }
  }
  const Translation unsharded =
      titan("[parallelism]\ndata_parallel_shard_degree = 1\nfsdp_reshard_after_forward = 'always'");
  EXPECT_EQ(strategy_of(unsharded), "no_shard false");
  EXPECT_TRUE(notes_name(unsharded, "parallelism.fsdp_reshard_after_forward = 'always'"));
  EXPECT_TRUE(notes_name(unsharded, "mixed_precision_param"));
}

TEST(Torchtitan, TheOldestForm) {
  EXPECT_EQ(mesh_in(titan("[training]\ndata_parallel_degree = 8\n")), "1 x 8");
  EXPECT_EQ(strategy_of(titan("[training]\ndata_parallel_degree = -1\ndata_parallel_type = 'fsdp'\n")),
            "full_shard auto");
  const Translation copies = titan("[training]\ndata_parallel_degree = 8\ndata_parallel_type = 'ddp'\n");
  EXPECT_EQ(strategy_of(copies), "no_shard false");
  EXPECT_EQ(mesh_in(copies), "8 x 1");
  EXPECT_EQ(mesh_in(titan("[training]\ndata_parallel_type = 'ddp'\n")), "-1 x 1");
  EXPECT_EQ(titan_error("[training]\ndata_parallel_type = 'dpp'\n"),
            "t.toml:2:22: `training.data_parallel_type = 'dpp'` must be one of \"fsdp\", \"ddp\"; did you mean `ddp`?");
  EXPECT_EQ(titan_error("[training]\ndata_parallel_degree = 8\ndata_parallel_shard_degree = 8\n"),
            "t.toml:2:24: `training.data_parallel_degree = 8` contradicts `training.data_parallel_shard_degree = 8`, "
            "which took its place");
}

TEST(Torchtitan, AKeyInTwoSections) {
  EXPECT_EQ(mesh_in(titan("[training]\ndata_parallel_shard_degree = 4\n[parallelism]\ndata_parallel_shard_degree = 4")),
            "1 x 4");
  EXPECT_EQ(
      titan_error("[training]\ndata_parallel_shard_degree = 4\n[parallelism]\ndata_parallel_shard_degree = 8"),
      "t.toml:2:30: `training.data_parallel_shard_degree = 4` contradicts `parallelism.data_parallel_shard_degree = "
      "8`: the same key in another section");
}

TEST(Torchtitan, PrecisionOffloadAndClipping) {
  const Translation translation = titan(
      "[training]\nmixed_precision_param = 'float32'\nmixed_precision_reduce = 'float32'\n"
      "enable_cpu_offload = true\nmax_norm = 2\ndtype = 'bfloat16'\n");
  EXPECT_EQ(value_of(translation, "mixed_precision.param"), "float32");
  EXPECT_EQ(value_of(translation, "offload.params"), "true");
  EXPECT_EQ(value_of(translation, "offload.pin_memory"), "true");
  EXPECT_EQ(value_of(translation, "gradient.clip_norm"), "2.0");
  EXPECT_EQ(value_of(translation, "gradient.divide_factor"), "-");
  EXPECT_TRUE(notes_name(translation, "training.dtype"));
  EXPECT_EQ(value_of(titan("[training]\nmax_norm = inf\n"), "gradient.clip_norm"), "-");
  EXPECT_EQ(value_of(titan("[training]\nenable_cpu_offload = false\n"), "offload.params"), "-");
  EXPECT_EQ(titan_error("[training]\nmax_norm = 0\n"), "t.toml:2:12: `training.max_norm = 0` must be a number above 0");
  EXPECT_EQ(titan_error("[training]\nmax_norm = nan\n"),
            "t.toml:2:12: `training.max_norm = nan` must be a number above 0");
  EXPECT_EQ(titan_error("[training]\nenable_cpu_offload = 'true'\n"),
            "t.toml:2:22: `training.enable_cpu_offload = 'true'` must be true or false");
  EXPECT_EQ(titan_error("[training]\nmixed_precision_reduce = 'bfloat16'\n"),
            "t.toml:2:26: `training.mixed_precision_reduce = 'bfloat16'` must be one of \"float32\"");
  EXPECT_EQ(titan_error("[training]\nmixed_precision_param = 'bfloat61'\n"),
            "t.toml:2:25: `training.mixed_precision_param = 'bfloat61'` must be one of \"bfloat16\", \"float32\"; did "
            "you mean `bfloat16`?");
}

TEST(Torchtitan, Checkpointing) {
  for (const auto& [mode, value] : {std::pair("none", "false"), std::pair("full", "true"),
                                    std::pair("selective", "true"), std::pair("memory_budget", "true")}) {
    const Translation translation = titan(std::string("[activation_checkpoint]\nmode = '") + mode + "'\n");
    EXPECT_EQ(value_of(translation, "activation_checkpointing"), value);
    EXPECT_EQ(notes_name(translation, "activation_checkpoint.mode"), std::string(mode).size() > 4) << mode;
  }
  EXPECT_EQ(titan_error("[activation_checkpoint]\nmode = 'ful'\n"),
            "t.toml:2:8: `activation_checkpoint.mode = 'ful'` must be one of \"none\", \"full\", \"selective\", "
            "\"memory_budget\"; did you mean `full`?");
}

TEST(Torchtitan, WhatHasNoCounterpartIsNoted) {
  const Translation translation = titan(
      "[parallelism]\nenable_fsdp_symm_mem = true\n[quantize.linear.float8]\n"
      "enable_fsdp_float8_all_gather = true\nprecompute_float8_dynamic_scale_for_fsdp = false\n"
      "[checkpoint]\nlast_save_in_hf = true\n");
  EXPECT_TRUE(notes_name(translation, "parallelism.enable_fsdp_symm_mem"));
  EXPECT_TRUE(notes_name(translation, "quantize.linear.float8.enable_fsdp_float8_all_gather"));
  EXPECT_FALSE(notes_name(translation, "precompute_float8"));
  EXPECT_TRUE(notes_name(translation, "checkpoint.last_save_in_hf"));
  EXPECT_EQ(value_of(translation, "checkpoint.kind"), "sharded");
}

TEST(Torchtitan, OnlyDataParallelRanks) {
  for (const char* key : {"tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree",
                          "expert_parallel_degree", "expert_tensor_parallel_degree"}) {
    EXPECT_NO_THROW(titan(std::string("[parallelism]\n") + key + " = 1\n"));
    const std::string error = titan_error(std::string("[parallelism]\n") + key + " = 2\n");
    EXPECT_NE(error.find(std::string("`parallelism.") + key + " = 2` is not possible: only data-parallel ranks"),
              std::string::npos)
        << error;
  }
  EXPECT_NE(titan_error("[experimental]\npipeline_parallel_degree = 2\n").find("t.toml:2:28: "), std::string::npos);
  EXPECT_NE(titan_error("[experimental]\ncontext_parallel_degree = 0\n").find("1 or more"), std::string::npos);
}

TEST(Torchtitan, Degrees) {
  EXPECT_EQ(titan_error("[parallelism]\ndata_parallel_shard_degree = 0\n"),
            "t.toml:2:30: `parallelism.data_parallel_shard_degree = 0` must be a number of ranks, 1 or more, or -1 for "
            "the rest");
  EXPECT_EQ(titan_error("[parallelism]\ndata_parallel_replicate_degree = -1\n"),
            "t.toml:2:34: `parallelism.data_parallel_replicate_degree = -1` must be a number of ranks, 1 or more");
  EXPECT_EQ(titan_error("[parallelism]\ndata_parallel_shard_degree = -2\n").find("t.toml:2:30: "), 0U);
  EXPECT_EQ(titan_error("[parallelism]\ndata_parallel_shard_degree = '4'\n").find("t.toml:2:30: "), 0U);
  EXPECT_EQ(titan_error("[parallelism]\ndata_parallel_shard_degree = [4]\n"),
            "t.toml:2:30: `parallelism.data_parallel_shard_degree = a list` must be a number of ranks, 1 or more, or "
            "-1 for the rest");
}

TEST(Torchtitan, DegreesMustMakeUpTheWorld) {
  const Translation translation = titan(
      "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n"
      "[activation_checkpoint]\nmode = 'none'\n[training]\nmax_norm = inf\n");
  const Config config = resolve({}, translation.given);
  EXPECT_EQ(mesh_of(config, 8, std::nullopt), (Mesh{2, 4}));
  EXPECT_EQ(text_of([&] { mesh_of(config, 6, std::nullopt); }),
            "t.toml:2:34: a mesh of 2 x 4 (replicate x shard) does not have the 6 ranks there are");
}

TEST(Torchtitan, UnknownKeysThatWouldShard) {
  EXPECT_EQ(titan_error("[parallelism]\ndata_parallel_shard_degre = 4\n"),
            "t.toml:2:1: torchtitan knows no key `parallelism.data_parallel_shard_degre`; did you mean "
            "`data_parallel_shard_degree`?");
  EXPECT_EQ(titan_error("[training]\nfsdp_reshard_after_backward = 'never'\n"),
            "t.toml:2:1: torchtitan knows no key `training.fsdp_reshard_after_backward`; did you mean "
            "`fsdp_reshard_after_forward`?");
  EXPECT_NO_THROW(titan("[training]\nlocal_batch_size = 4\n[model]\nfsdp_like = 3\n"));
  EXPECT_EQ(titan_error("training = 3\n"), "t.toml:1:1: `training` must be a table, [training]");
  EXPECT_EQ(titan_error("[parallelism]\nfsdp_reshard_after_forward = 'alwasy'\n"),
            "t.toml:2:30: `parallelism.fsdp_reshard_after_forward = 'alwasy'` must be one of \"default\", \"always\", "
            "\"never\"; did you mean `always`?");
  EXPECT_EQ(titan_error("[parallelism]\nfsdp_reshard_after_forward = true\n"),
            "t.toml:2:30: `parallelism.fsdp_reshard_after_forward = true` must be one of \"default\", \"always\", "
            "\"never\"");
}

TEST(Torchtitan, FlagsInAFile) {
  const Translation translation = titan(
      "# what the script passes\n--parallelism.data_parallel_replicate_degree 2 --training.max-norm=0.5 \\\n"
      "  --parallelism.fsdp_reshard_after_forward \"never\"\n--training.enable_cpu_offload "
      "--parallelism.data_parallel_shard_degree -1\n--activation_checkpoint.mode none --metrics.log_freq 10\n");
  EXPECT_EQ(strategy_of(translation), "hybrid_shard_zero2 false");
  EXPECT_EQ(mesh_in(translation), "2 x -1");
  EXPECT_EQ(value_of(translation, "gradient.clip_norm"), "0.5");
  EXPECT_EQ(value_of(translation, "offload.params"), "true");
  EXPECT_EQ(value_of(translation, "activation_checkpointing"), "false");
  EXPECT_EQ(value_of(titan("--training.no-enable-cpu-offload"), "offload.params"), "-");
  EXPECT_EQ(titan_error("--training.steps 3\n  --parallelism.tensor_parallel_degree 2\n"),
            "t.toml:2:3: `--parallelism.tensor_parallel_degree 2` is not possible: only data-parallel ranks are "
            "sharded, so it must be 1");
  EXPECT_EQ(
      titan_error("--parallelism.data_parallel_shard_degree\n"),
      "t.toml:1:1: `--parallelism.data_parallel_shard_degree` must be a number of ranks, 1 or more, or -1 for the "
      "rest");
  EXPECT_EQ(titan_error("--parallelism.data_parallel_shard_degree 2 4\n").find("t.toml:1:1: "), 0U);
  EXPECT_TRUE(notes_name(titan("--module llama3 --config llama3_8b\n"), "--module llama3"));
  EXPECT_EQ(titan_error("--job.config_file train.toml --training.max_norm 1\n"),
            "t.toml:1:1: `--job.config_file train.toml` names a file, which is not read from here: name that one in "
            "`config`, and write what the other flags say as keys of [fsdp]");
}

TEST(Torchtitan, FlagsWinOverTheFile) {
  const std::string toml = "[parallelism]\ndata_parallel_shard_degree = 4\n[training]\nmax_norm = 2.0\n";
  const Translation translation = titan(
      toml, {"--training.data_parallel_shard_degree", "8", "--training.max_norm=0.5", "--job.config_file=t.toml"});
  EXPECT_EQ(mesh_in(translation), "1 x 8");
  EXPECT_EQ(value_of(translation, "gradient.clip_norm"), "0.5");
  EXPECT_EQ(titan_error(toml, {"--parallelism.data_parallel_shard_degree", "zero"}),
            "override `--parallelism.data_parallel_shard_degree zero`: `--parallelism.data_parallel_shard_degree zero` "
            "must be a number of ranks, 1 or more, or -1 for the rest");
  EXPECT_EQ(titan_error(toml, {"--a", "\xFF"}), "flag 2:1:1: this is not text in UTF-8");
  EXPECT_EQ(titan_error(toml, {"4"}), "override `4`: `4` belongs to no flag; flags are written --section.key value");
}

TEST(Torchtitan, OnlyVersion2) {
  TranslationContext context;
  context.version = 1;
  EXPECT_EQ(text_of([&] { translate_torchtitan("", "t.toml", context); }),
            "t.toml: torchtitan knows only version 2, which cannot be converted to version 1");
}

TEST(Torchtitan, HostileText) {
  EXPECT_EQ(titan_error("[training\n").find("t.toml:1:"), 0U);
  EXPECT_NE(titan_error("[training]\nmax_norm = \n").find("this is not TOML"), std::string::npos);
  std::string dots;
  for (int i = 0; i < 100'000; ++i) dots += "a.";
  EXPECT_EQ(titan_error("\n" + dots + "a = 1\n"), "t.toml:2:1: keys and brackets are nested more than 500 deep");
  std::string inner;
  for (int i = 0; i < 300; ++i) inner += "x = {a.a.a";
  EXPECT_EQ(titan_error(inner).find("t.toml:1:1: keys and brackets are nested"), 0U);
  EXPECT_EQ(titan_error("x = " + std::string(100'000, '[')).find("t.toml:1:1: keys and brackets are nested"), 0U);
  std::string numbers = "x = [";
  for (int i = 0; i < 2000; ++i) numbers += "1.5, ";
  EXPECT_NO_THROW(titan(numbers + "]\ny = \"" + dots + "\" # " + dots + "\nz = '''\n" + dots + "\n'''\n"));
  EXPECT_EQ(titan_error(std::string((1U << 20U) + 1, '#')),
            "t.toml: the text is larger than 1 MiB, which no configuration is");
  EXPECT_NO_THROW(titan(std::string((1U << 20U), '#')));
  EXPECT_NO_THROW(titan("--" + std::string(500'000, '\'')));
  EXPECT_EQ(text_of([&] { read_given(dots + "a = 1\n", "own.toml"); }),
            "own.toml:1:1: keys and brackets are nested more than 500 deep");
}

}  // namespace
}  // namespace fsdp2
