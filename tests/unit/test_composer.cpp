#include "adapters/adapters.hpp"
#include "helpers.hpp"
#include "registry/config.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::mesh_in;
using test::notes_name;
using test::strategy_of;
using test::text_of;
using test::value_of;

/// Lines of fsdp_config, which begin in line 2, and lines of the top level, which follow.
std::string composer_file(const std::string& fsdp, const std::string& top = "") {
  return (fsdp.empty() ? "fsdp_config: {}\n" : "fsdp_config:\n") + test::indented(fsdp, 2) + top;
}

Translation composer(const std::string& fsdp, const std::string& top = "") {
  return translate_composer(composer_file(fsdp, top), "c.yaml", {});
}

Translation composer2(const std::string& fsdp, const std::string& top = "") {
  TranslationContext context;
  context.environment["FSDP_VERSION"] = "2";
  return translate_composer(composer_file(fsdp, top), "c.yaml", context);
}

std::string composer_error(const std::string& fsdp, const std::string& top = "") {
  return text_of([&] { composer(fsdp, top); });
}

TEST(Composer, Defaults) {
  const Translation translation = composer("", "precision: amp_bf16\n");
  EXPECT_EQ(value_of(translation, "version"), "1");
  EXPECT_EQ(strategy_of(translation), "full_shard true");
  EXPECT_EQ(mesh_in(translation), "- x -");
  EXPECT_EQ(value_of(translation, "prefetch.backward"), "1");
  EXPECT_EQ(value_of(translation, "prefetch.forward"), "0");
  EXPECT_EQ(value_of(translation, "checkpoint.kind"), "full");
  EXPECT_EQ(value_of(translation, "load.mode"), "full");
  EXPECT_EQ(value_of(translation, "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(value_of(translation, "mixed_precision.reduce"), "float32");
  EXPECT_EQ(value_of(translation, "mixed_precision.cast_forward_inputs"), "true");
  EXPECT_EQ(translation.given.size(), 10U);
  EXPECT_TRUE(translation.notes.empty());
  EXPECT_TRUE(translation.warning.empty());
}

TEST(Composer, NothingIsShardedWithoutItsBlock) {
  for (const char* yaml : {"precision: fp32\n", "fsdp_config:\nprecision: fp32\n", ""}) {
    EXPECT_EQ(text_of([&] { translate_composer(yaml, "c.yaml", {}); }),
              "c.yaml: `fsdp_config` is missing or empty: without it Composer does not shard");
  }
  const Translation direct =
      translate_composer("parallelism_config:\n  fsdp: {sharding_strategy: NO_SHARD}\n", "c.yaml", {});
  EXPECT_EQ(strategy_of(direct), "no_shard false");
}

TEST(Composer, StrategyFollowsTheMesh) {
  struct Case {
    const char* keys;
    const char* strategy;
    const char* mesh;
    bool is_noted;
  };
  for (const Case& c :
       {Case{"sharding_strategy: full_shard", "full_shard true", "- x -", false},
        Case{"sharding_strategy: SHARD_GRAD_OP", "shard_grad_op false", "- x -", false},
        Case{"sharding_strategy: NO_SHARD", "no_shard false", "- x -", false},
        Case{"sharding_strategy: HYBRID_SHARD", "full_shard true", "- x -", true},
        Case{"sharding_strategy: _HYBRID_SHARD_ZERO2\ndata_parallel_shard_degree: 8", "shard_grad_op false", "- x 8",
             true},
        Case{"sharding_strategy: HYBRID_SHARD\ndata_parallel_replicate_degree: 2", "hybrid_shard true", "2 x -", false},
        Case{"sharding_strategy: FULL_SHARD\ndata_parallel_replicate_degree: 2", "hybrid_shard true", "2 x -", true},
        Case{"sharding_strategy: SHARD_GRAD_OP\ndata_parallel_replicate_degree: -1\ndata_parallel_shard_degree: 4",
             "hybrid_shard_zero2 false", "-1 x 4", true},
        Case{"data_parallel_replicate_degree: 2\ndata_parallel_shard_degree: 4", "hybrid_shard true", "2 x 4", false},
        Case{"data_parallel_replicate_degree: 1", "full_shard true", "1 x -", false}}) {
    const Translation translation = composer(c.keys, "precision: fp32\n");
    EXPECT_EQ(strategy_of(translation), c.strategy) << c.keys;
    EXPECT_EQ(mesh_in(translation), c.mesh) << c.keys;
    EXPECT_EQ(notes_name(translation, "sharding_strategy"), c.is_noted) << c.keys;
  }
  const Translation group =
      composer("sharding_strategy: HYBRID_SHARD\nprocess_group: node\ndata_parallel_shard_degree: 4");
  EXPECT_EQ(strategy_of(group), "hybrid_shard true");
  EXPECT_EQ(mesh_in(group), "- x -");
  EXPECT_TRUE(notes_name(group, "process_group: node"));
  EXPECT_TRUE(notes_name(group, "data_parallel_shard_degree"));
}

TEST(Composer, ErrorsOfSharding) {
  EXPECT_EQ(
      composer_error("sharding_strategy: FULL_SHRAD"),
      "c.yaml:2:22: `sharding_strategy: FULL_SHRAD` must be one of \"FULL_SHARD\", \"SHARD_GRAD_OP\", \"NO_SHARD\", "
      "\"HYBRID_SHARD\", \"_HYBRID_SHARD_ZERO2\"; did you mean `FULL_SHARD`?");
  EXPECT_EQ(composer_error("device_mesh: [8]"),
            "c.yaml:2:16: `device_mesh: a list` is refused by Composer: use `data_parallel_shard_degree` and "
            "`data_parallel_replicate_degree`");
  EXPECT_EQ(composer_error("cpu_offload: true"), "c.yaml:2:16: `cpu_offload: true` is refused by Composer");
  EXPECT_NO_THROW(composer("cpu_offload: false"));
  EXPECT_EQ(composer_error("data_parallel_shard_degree: 0"),
            "c.yaml:2:31: `data_parallel_shard_degree: 0` must be a number of ranks, 1 or more, or -1 for the rest");
  EXPECT_EQ(
      composer_error("data_parallel_replicate_degree: -1"),
      "c.yaml:2:35: `data_parallel_replicate_degree: -1` contradicts `data_parallel_shard_degree: -1`, the default: "
      "only one of the two can be the rest of the ranks");
  EXPECT_EQ(
      composer_error("verbose: true", "tp_config:\n  tensor_parallel_degree: 2\n"),
      "c.yaml:4:27: `tensor_parallel_degree: 2` is not possible: only data-parallel ranks are sharded, so it must be "
      "1");
  EXPECT_NO_THROW(composer("", "tp_config: {tensor_parallel_degree: 1}\n"));
  EXPECT_EQ(composer_error("sharding_strategy: ${variables.strategy}"),
            "c.yaml:2:22: `sharding_strategy: ${variables.strategy}` stands for another value, which is not looked up: "
            "write the value itself");
  EXPECT_EQ(composer_error("", "precision: ${p}\n").find("c.yaml:2:12: "), 0U);
}

TEST(Composer, Prefetch) {
  const Translation post = composer("backward_prefetch: BACKWARD_POST\nbackward_prefetch_limit: 3");
  EXPECT_EQ(value_of(post, "prefetch.backward"), "3");
  EXPECT_TRUE(notes_name(post, "backward_prefetch"));
  EXPECT_EQ(value_of(composer("backward_prefetch: backward_pre\nbackward_prefetch_limit: 2"), "prefetch.backward"),
            "2");
  EXPECT_EQ(value_of(composer("backward_prefetch: NONE"), "prefetch.backward"), "0");
  EXPECT_EQ(value_of(composer("forward_prefetch: true"), "prefetch.forward"), "1");
  EXPECT_EQ(value_of(composer("forward_prefetch: true\nforward_prefetch_limit: 4"), "prefetch.forward"), "4");
  EXPECT_EQ(value_of(composer("forward_prefetch: false\nforward_prefetch_limit: 4"), "prefetch.forward"), "0");
  EXPECT_EQ(
      composer_error("backward_prefetch: BACKWARD"),
      "c.yaml:2:22: `backward_prefetch: BACKWARD` must be one of \"BACKWARD_PRE\", \"BACKWARD_POST\", \"NONE\"; did "
      "you mean `BACKWARD_PRE`?");
  EXPECT_EQ(composer_error("backward_prefetch_limit: many"),
            "c.yaml:2:28: `backward_prefetch_limit: many` must be a number of units, 0 or more");
}

TEST(Composer, StateDictAndLoading) {
  EXPECT_EQ(value_of(composer("state_dict_type: sharded"), "checkpoint.kind"), "sharded");
  EXPECT_EQ(
      composer_error("state_dict_type: local"),
      "c.yaml:2:20: `state_dict_type: local` must be one of \"full\", \"sharded\": Composer no longer writes local "
      "ones");
  EXPECT_EQ(composer_error("state_dict_type: shard"),
            "c.yaml:2:20: `state_dict_type: shard` must be one of \"full\", \"sharded\"; did you mean `sharded`?");
  EXPECT_EQ(value_of(composer("sync_module_states: true"), "load.mode"), "broadcast");
  EXPECT_EQ(value_of(composer("sync_module_states: true\nload_monolith_rank0_only: true"), "load.mode"), "broadcast");
  EXPECT_EQ(composer_error("load_monolith_rank0_only: true"),
            "c.yaml:2:29: `load_monolith_rank0_only: true` needs `sync_module_states: true` beside it");
  const Translation sharded = composer("load_monolith_rank0_only: true\nstate_dict_type: sharded");
  EXPECT_EQ(value_of(sharded, "load.mode"), "full");
  EXPECT_TRUE(notes_name(sharded, "load_monolith_rank0_only"));
  const Translation mixed = composer("load_monolith_rank0_only: true", "model:\n  init_device: mixed\n");
  EXPECT_EQ(value_of(mixed, "load.mode"), "broadcast");
  EXPECT_TRUE(notes_name(mixed, "init_device"));
}

TEST(Composer, Precision) {
  struct Case {
    const char* mixed;
    const char* precision;
    const char* param;
    const char* reduce;
  };
  for (const Case& c :
       {Case{"DEFAULT", "amp_fp16", "float16", "float32"}, Case{"pure", "amp_bf16", "bfloat16", "bfloat16"},
        Case{"FULL", "amp_bf16", "-", "-"}, Case{"DEFAULT", "fp32", "-", "float32"},
        Case{"PURE", "fp32", "-", "float32"}, Case{"PURE", "amp_fp8", "bfloat16", "bfloat16"}}) {
    const Translation translation =
        composer(std::string("mixed_precision: ") + c.mixed, std::string("precision: ") + c.precision + "\n");
    EXPECT_EQ(value_of(translation, "mixed_precision.param"), c.param) << c.mixed << " " << c.precision;
    EXPECT_EQ(value_of(translation, "mixed_precision.reduce"), c.reduce) << c.mixed << " " << c.precision;
    EXPECT_EQ(notes_name(translation, "amp_fp8"), std::string(c.precision) == "amp_fp8");
  }
  const Translation table = composer(
      "mixed_precision: {param_dtype: bf16, reduce_dtype: torch.float32, buffer_dtype: fp32}", "precision: fp32\n");
  EXPECT_EQ(value_of(table, "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(value_of(table, "mixed_precision.reduce"), "float32");
  EXPECT_TRUE(notes_name(table, "buffer_dtype"));
  const Translation unsaid = composer("mixed_precision: PURE");
  EXPECT_EQ(value_of(unsaid, "mixed_precision.param"), "bfloat16");
  EXPECT_TRUE(notes_name(unsaid, "precision"));
  const Translation nothing = composer("");
  EXPECT_EQ(value_of(nothing, "mixed_precision.param"), "-");
  EXPECT_TRUE(notes_name(nothing, "precision"));
  const Translation small = composer("", "precision: amp_bf16\nmodel: {master_weights_dtype: bf16}\n");
  EXPECT_EQ(value_of(small, "mixed_precision.param"), "-");
  EXPECT_TRUE(notes_name(small, "master_weights_dtype"));
  EXPECT_EQ(composer_error("mixed_precision: {param_dtype: int8}"),
            "c.yaml:2:34: `param_dtype: int8` must be one of \"float32\", \"float16\", \"bfloat16\"");
  EXPECT_EQ(composer_error("mixed_precision: DEFALT"),
            "c.yaml:2:20: `mixed_precision: DEFALT` must be one of \"DEFAULT\", \"PURE\", \"FULL\"; did you mean "
            "`DEFAULT`?");
  EXPECT_EQ(
      composer_error("", "precision: amp_b16\n"),
      "c.yaml:2:12: `precision: amp_b16` must be one of \"fp32\", \"amp_fp16\", \"amp_bf16\", \"amp_fp8\"; did you "
      "mean `amp_bf16`?");
}

TEST(Composer, ClippingAndCheckpointing) {
  const std::string norm = "algorithms:\n  gradient_clipping:\n    clipping_type: norm\n    clipping_threshold: ";
  EXPECT_EQ(value_of(composer("", norm + "0.5\n"), "gradient.clip_norm"), "0.5");
  EXPECT_EQ(value_of(composer("", norm + "1e-1\n"), "gradient.clip_norm"), "0.1");
  EXPECT_EQ(composer_error("", norm + "0\n"), "c.yaml:5:25: `clipping_threshold: 0` must be a number above 0");
  EXPECT_EQ(composer_error("", norm + "\n").find("c.yaml:4:20: `clipping_threshold` is missing"), 0U);
  const Translation value =
      composer("", "algorithms: {gradient_clipping: {clipping_type: value, clipping_threshold: 1.0}}\n");
  EXPECT_EQ(value_of(value, "gradient.clip_norm"), "-");
  EXPECT_TRUE(notes_name(value, "clipping_type"));
  EXPECT_EQ(value_of(composer("activation_checkpointing: true"), "activation_checkpointing"), "true");
  EXPECT_EQ(value_of(composer("activation_checkpointing: false"), "activation_checkpointing"), "false");
  EXPECT_EQ(composer_error("activation_checkpointing: 1"),
            "c.yaml:2:29: `activation_checkpointing: 1` must be true or false");
}

TEST(Composer, NotesAndSilence) {
  const Translation translation = composer(
      "activation_cpu_offload: true\nte_shard_fp8_weight: true\nignored_modules: [a]\nauto_wrap: true\n"
      "limit_all_gathers: true\nuse_orig_params: false\nverbose: true\nactivation_checkpointing_reentrant: false\n"
      "sharded_ckpt_prefix_dir: x\nte_checkpoint_wrapper: false\nreshard_after_forward: false\nmin_params: 1e8",
      "precision: fp32\n");
  for (const char* key :
       {"activation_cpu_offload", "te_shard_fp8_weight", "ignored_modules", "reshard_after_forward", "min_params"}) {
    EXPECT_TRUE(notes_name(translation, key)) << key;
  }
  EXPECT_EQ(translation.notes.size(), 5U);
  EXPECT_EQ(strategy_of(translation), "full_shard true");
  EXPECT_TRUE(notes_name(composer("forward_prefech: true"), "did you mean `forward_prefetch`?"));
}

TEST(Composer, Version2) {
  const Translation translation = composer2(
      "sharding_strategy: SHARD_GRAD_OP\nbackward_prefetch: BACKWARD_PRE\nmixed_precision: PURE\n"
      "activation_checkpointing: true\nsync_module_states: true\ncpu_offload: true\nlimit_all_gathers: null\n"
      "made_up: 3",
      "precision: amp_bf16\n");
  EXPECT_EQ(value_of(translation, "version"), "2");
  EXPECT_EQ(strategy_of(translation), "full_shard true");
  EXPECT_EQ(value_of(translation, "checkpoint.kind"), "sharded");
  EXPECT_EQ(value_of(translation, "load.mode"), "full");
  EXPECT_EQ(value_of(translation, "prefetch.backward"), "-");
  EXPECT_EQ(value_of(translation, "mixed_precision.reduce"), "bfloat16");
  EXPECT_EQ(value_of(translation, "mixed_precision.cast_forward_inputs"), "-");
  EXPECT_EQ(value_of(translation, "activation_checkpointing"), "true");
  EXPECT_EQ(translation.obsolete, (std::vector<std::string>{"sharding_strategy", "backward_prefetch",
                                                            "sync_module_states", "cpu_offload", "made_up"}));
  EXPECT_EQ(translation.warning.find("c.yaml: obsolete under version 2, to be removed: `sharding_strategy` (line 2), "),
            0U);
  EXPECT_EQ(strategy_of(composer2("reshard_after_forward: false")), "shard_grad_op false");
  EXPECT_EQ(strategy_of(composer2("reshard_after_forward: 4")), "full_shard 4");
  const Translation mesh = composer2("device_mesh: [2, 4]\nreshard_after_forward: false");
  EXPECT_EQ(strategy_of(mesh), "hybrid_shard_zero2 false");
  EXPECT_EQ(mesh_in(mesh), "2 x 4");
  EXPECT_EQ(mesh_in(composer2("device_mesh: [4]")), "- x 4");
  EXPECT_EQ(value_of(composer2("load_monolith_rank0_only: true\nstate_dict_type: full"), "load.mode"), "broadcast");
  EXPECT_TRUE(notes_name(composer2("activation_cpu_offload: true"), "activation_cpu_offload"));
  EXPECT_EQ(text_of([] { composer2("reshard_after_forward: never"); }),
            "c.yaml:2:26: `reshard_after_forward: never` must be true, false or a number of ranks, 1 or more");
  EXPECT_EQ(text_of([] { composer2("device_mesh: world"); }),
            "c.yaml:2:16: `device_mesh: world` must be numbers of ranks, [shard] or [replicate, shard]");
}

TEST(Composer, ConvertsToVersion2) {
  TranslationContext context;
  context.version = 2;
  const Translation converted = translate_composer(
      composer_file("sharding_strategy: SHARD_GRAD_OP\nforward_prefetch: true\nsync_module_states: true"), "c.yaml",
      context);
  EXPECT_EQ(value_of(converted, "version"), "2");
  EXPECT_EQ(strategy_of(converted), "shard_grad_op false");
  EXPECT_EQ(value_of(converted, "load.mode"), "broadcast");
  EXPECT_EQ(value_of(converted, "checkpoint.kind"), "full");
  EXPECT_EQ(value_of(converted, "prefetch.forward"), "-");
  EXPECT_EQ(converted.obsolete,
            (std::vector<std::string>{"sharding_strategy", "forward_prefetch", "sync_module_states"}));
  const Translation of_2 = translate_composer(
      composer_file("sharding_strategy: SHARD_GRAD_OP\nreshard_after_forward: true"), "c.yaml", context);
  EXPECT_EQ(strategy_of(of_2), "full_shard true");
  EXPECT_EQ(value_of(of_2, "checkpoint.kind"), "sharded");
  context.version = 1;
  context.environment["FSDP_VERSION"] = "2";
  EXPECT_EQ(text_of([&] { translate_composer(composer_file(""), "c.yaml", context); }),
            "c.yaml: `FSDP_VERSION=2` in the environment makes this version 2, which cannot be converted to version 1");
}

}  // namespace
}  // namespace fsdp2
