#include <cstdio>

#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "helpers.hpp"
#include "plugin/wrap/planner.hpp"
#include "registry/toml_writer.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::notes_name;
using test::text_of;
using test::text_value;
using test::value;

Translation translate(const std::string& yaml, const TranslationContext& context = {}) {
  return translate_accelerate(yaml, "a.yaml", context);
}

/// A file with these lines in fsdp_config, which begin in line 3, and these at the top, after them.
std::string file_of(const std::string& fsdp, const std::string& top = "") {
  return "distributed_type: FSDP\nfsdp_config:\n  fsdp_ignored_modules: null\n" + test::indented(fsdp, 2) + top;
}

std::string fault(const std::string& fsdp, const std::string& top = "") {
  return text_of([&] { translate(file_of(fsdp, top)); });
}

// What `accelerate config` of 1.15.0 writes for FSDP version 2.
constexpr const char* kAsWritten = R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: Block
  fsdp_version: 2
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";

TEST(Accelerate, TheFileItWritesForVersion2Runs) {
  const Translation translation = translate(kAsWritten);
  EXPECT_TRUE(translation.warning.empty());
  EXPECT_TRUE(translation.notes.empty());
  const Config config = resolve({}, translation.given);
  EXPECT_EQ(to_toml(config.options),
            "[fsdp]\nversion = 2\nstrategy = \"full_shard\"\nreshard_after_forward = true\n"
            "wrap.policy = \"transformer\"\nwrap.layer_classes = [\"Block\"]\nload.mode = \"broadcast\"\n");
  const Plan plan = make_plan(test::small_model().tree(), config, 2);
  EXPECT_EQ(plan.units.size(), 3U);
  EXPECT_TRUE(plan.units.back().reshard_after_forward);
}

TEST(Accelerate, DefaultsOfTheLauncher) {
  const Translation v1 = translate("distributed_type: FSDP\n");
  EXPECT_EQ(value<int64_t>(v1, "version"), 1);
  EXPECT_EQ(text_value(v1, "strategy"), "full_shard");
  EXPECT_TRUE(value<bool>(v1, "reshard_after_forward"));
  EXPECT_EQ(text_value(v1, "wrap.policy"), "none");
  EXPECT_EQ(text_value(v1, "checkpoint.kind"), "full");
  EXPECT_EQ(text_value(v1, "load.mode"), "broadcast");
  EXPECT_EQ(value<int64_t>(v1, "prefetch.backward"), 0);
  EXPECT_EQ(value<int64_t>(v1, "prefetch.forward"), 0);
  EXPECT_EQ(v1.given.size(), 8U);
  const Translation v2 = translate(file_of("version: 2"));
  EXPECT_EQ(value<int64_t>(v2, "version"), 2);
  EXPECT_EQ(text_value(v2, "strategy"), "full_shard");
  EXPECT_TRUE(value<bool>(v2, "reshard_after_forward"));
  EXPECT_EQ(text_value(v2, "checkpoint.kind"), "sharded");
  EXPECT_EQ(v2.given.size(), 6U);
}

TEST(Accelerate, JsonIsReadToo) {
  EXPECT_EQ(value<int64_t>(translate(R"({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}})"), "version"),
            2);
}

TEST(Accelerate, StrategiesOfVersion1) {
  struct Case {
    const char* written;
    const char* strategy;
    bool reshards;
  };
  for (const Case& c : {Case{"FULL_SHARD", "full_shard", true}, Case{"shard_grad_op", "shard_grad_op", false},
                        Case{"3", "no_shard", false}, Case{"'2'", "shard_grad_op", false}}) {
    const Translation translation = translate(file_of(std::string("fsdp_sharding_strategy: ") + c.written));
    EXPECT_EQ(text_value(translation, "strategy"), c.strategy);
    EXPECT_EQ(value<bool>(translation, "reshard_after_forward"), c.reshards);
  }
  const Translation by_reshard = translate(file_of("fsdp_reshard_after_forward: SHARD_GRAD_OP"));
  EXPECT_EQ(text_value(by_reshard, "strategy"), "shard_grad_op");
  EXPECT_TRUE(notes_name(by_reshard, "fsdp_reshard_after_forward"));
  const Translation both =
      translate(file_of("fsdp_reshard_after_forward: SHARD_GRAD_OP\nfsdp_sharding_strategy: NO_SHARD"));
  EXPECT_EQ(text_value(both, "strategy"), "no_shard");
  EXPECT_TRUE(notes_name(both, "fsdp_reshard_after_forward"));
}

TEST(Accelerate, TruthWordsOfReshardAreDroppedUnderVersion1) {
  for (const char* word : {"true", "false", "'off'"}) {
    const Translation translation = translate(file_of(std::string("fsdp_reshard_after_forward: ") + word));
    EXPECT_EQ(text_value(translation, "strategy"), "full_shard");
    EXPECT_TRUE(notes_name(translation, "fsdp_reshard_after_forward"));
  }
}

TEST(Accelerate, StrategyOfVersion2IsOnlyTheReshardRule) {
  const Translation keeps = translate(file_of("version: 2\nfsdp_reshard_after_forward: 'off'"));
  EXPECT_EQ(text_value(keeps, "strategy"), "shard_grad_op");
  const Translation leftover = translate(file_of("version: 2\nfsdp_sharding_strategy: NO_SHARD"));
  EXPECT_EQ(text_value(leftover, "strategy"), "full_shard");
  EXPECT_EQ(leftover.obsolete, std::vector<std::string>{"fsdp_sharding_strategy"});
  EXPECT_EQ(leftover.warning, "a.yaml: obsolete under version 2, to be removed: `fsdp_sharding_strategy` (line 5)");
  EXPECT_EQ(text_value(translate(file_of("version: 2\nfsdp_reshard_after_forward: 1")), "strategy"), "full_shard");
}

TEST(Accelerate, OneWarningForAllThatIsObsolete) {
  const Translation translation =
      translate(file_of("version: 2\nbackward_prefetch: BACKWARD_PRE\nfsdp_forward_prefetch: false\n"
                        "fsdp_sync_module_states: true\nfsdp_use_orig_params: null\nfsdp_limit_all_gathers: false"));
  EXPECT_EQ(translation.warning,
            "a.yaml: obsolete under version 2, to be removed: `backward_prefetch` (line 5), `fsdp_forward_prefetch` "
            "(line 6), `fsdp_sync_module_states` (line 7), `fsdp_limit_all_gathers` (line 9)");
  EXPECT_TRUE(translate(file_of("fsdp_use_orig_params: true")).warning.empty());
}

TEST(Accelerate, ErrorsSayWhere) {
  const Error error = error_of([] { translate(file_of("version: 3")); });
  EXPECT_STREQ(error.what(), "a.yaml:4:12: `version: 3` is an unknown version; there are 1 and 2");
  EXPECT_EQ(error.details().file, "a.yaml");
  EXPECT_EQ(error.details().line, 4);
  EXPECT_EQ(error.details().column, 12);
  EXPECT_EQ(error.details().key, "version");
}

TEST(Accelerate, Errors) {
  const std::string strategies = R"("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")";
  EXPECT_EQ(fault("fsdp_reshard_after_forward: NO_RESHARD"),
            "a.yaml:4:31: `fsdp_reshard_after_forward: NO_RESHARD` must be one of " + strategies +
                "; did you mean `NO_SHARD`?");
  EXPECT_EQ(fault("fsdp_sharding_strategy: 6"),
            "a.yaml:4:27: `fsdp_sharding_strategy: 6` must be one of " + strategies);
  EXPECT_EQ(fault("version: 2\nfsdp_reshard_after_forward: FULL_SHARD"),
            "a.yaml:5:31: `fsdp_reshard_after_forward: FULL_SHARD` must be true or false under version 2");
  EXPECT_EQ(fault("version: 2\nfsdp_reshard_after_forward: 8"),
            "a.yaml:5:31: `fsdp_reshard_after_forward: 8` must be true or false under version 2");
  EXPECT_EQ(fault("version: 2\nfsdp_state_dict_type: LOCAL_STATE_DICT"),
            "a.yaml:5:25: `fsdp_state_dict_type: LOCAL_STATE_DICT` does not exist under version 2: use "
            "SHARDED_STATE_DICT or FULL_STATE_DICT");
  EXPECT_EQ(fault("fsdp_auto_wrap_policy: SIZE_BASED_WARP"),
            "a.yaml:4:26: `fsdp_auto_wrap_policy: SIZE_BASED_WARP` must be one of \"TRANSFORMER_BASED_WRAP\", "
            "\"SIZE_BASED_WRAP\", \"NO_WRAP\"; did you mean `SIZE_BASED_WRAP`?");
  EXPECT_EQ(fault("fsdp_auto_wrap_policy: SIZE_BASED_WRAP\nfsdp_min_num_params: 1e8"),
            "a.yaml:5:24: `fsdp_min_num_params: 1e8` must be a whole number, 0 or more, in digits");
  EXPECT_EQ(fault("fsdp_offload_params: CPUOffloadPolicy"),
            "a.yaml:4:24: `fsdp_offload_params: CPUOffloadPolicy` is an object of version 2's Python interface; here "
            "it must be true or false");
  EXPECT_EQ(fault("version: 2\nfsdp_offload_params: CPUOffload"),
            "a.yaml:5:24: `fsdp_offload_params: CPUOffload` is an object of version 1's Python interface; here it "
            "must be true or false");
  EXPECT_EQ(fault("fsdp_backward_prefetch: 3"),
            "a.yaml:4:27: `fsdp_backward_prefetch: 3` must be one of \"BACKWARD_PRE\", \"BACKWARD_POST\", "
            "\"NO_PREFETCH\"");
  EXPECT_EQ(fault("fsdp_activation_checkpointing_offload: true"),
            "a.yaml:4:42: `fsdp_activation_checkpointing_offload: true` needs `fsdp_activation_checkpointing: true`");
  EXPECT_EQ(fault("fsdp_activation_checkpointing: true\nfsdp_activation_checkpointing_offload: true"),
            "a.yaml:5:42: `fsdp_activation_checkpointing_offload: true` needs `fsdp_version: 2`");
  EXPECT_EQ(
      fault("version: 2\nfsdp_activation_checkpointing: true"),
      "a.yaml:5:34: `fsdp_activation_checkpointing: true` needs `fsdp_auto_wrap_policy`: Accelerate fails without "
      "one under version 2");
  EXPECT_EQ(
      fault("version: 2\nfsdp_sync_module_states: false"),
      "a.yaml:5:28: `fsdp_sync_module_states: false` needs `fsdp_cpu_ram_efficient_loading: false`, which is true "
      "by default");
  EXPECT_EQ(fault("fsdp_sharding_strategy: HYBRID_SHARD"),
            "a.yaml:4:27: `fsdp_sharding_strategy: HYBRID_SHARD` needs an auto wrap policy: a hybrid strategy "
            "without units fails in PyTorch");
}

TEST(Accelerate, ErrorsAtTheTopLevel) {
  EXPECT_EQ(text_of([] { translate("num_machines: 1\n"); }), "a.yaml: `distributed_type: FSDP` is missing");
  EXPECT_EQ(text_of([] { translate("distributed_type: MULTI_GPU\n"); }),
            "a.yaml:1:19: `distributed_type: MULTI_GPU` is not translated; accepted now: FSDP, DEEPSPEED");
  EXPECT_EQ(fault("", "fsdp_confg: {}\n"),
            "a.yaml:4:1: Accelerate knows no key `fsdp_confg` at the top level; did you mean `fsdp_config`?");
  EXPECT_EQ(fault("", "mixed_precision: bfloat16\n"),
            "a.yaml:4:18: `mixed_precision: bfloat16` must be one of \"no\", \"fp16\", \"bf16\", \"fp8\"");
  EXPECT_EQ(text_of([] { translate("a: [1\n"); }).find("a.yaml:"), 0U);
  EXPECT_EQ(text_of([] { translate("distributed_type: FSDP\nfsdp_config: 3\n"); }),
            "a.yaml:2:14: `fsdp_config` must be a map");
}

TEST(Accelerate, Mesh) {
  const std::string sizes =
      "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 4\n";
  const Translation hybrid = translate(file_of("version: 2", sizes));
  EXPECT_EQ(text_value(hybrid, "strategy"), "hybrid_shard");
  EXPECT_EQ(value<int64_t>(hybrid, "mesh.replicate"), 2);
  EXPECT_EQ(value<int64_t>(hybrid, "mesh.shard"), 4);
  EXPECT_EQ(fault("version: 2", sizes + "num_processes: 6\n"),
            "a.yaml:8:16: `num_processes: 6` is not `parallelism_config_dp_replicate_size` x "
            "`parallelism_config_dp_shard_size`, 2 x 4");
  EXPECT_EQ(fault("", sizes), "a.yaml:4:1: `parallelism_config` needs `fsdp_version: 2`");
  EXPECT_EQ(fault("version: 2", "parallelism_config:\n  parallelism_config_tp_size: 2\n"),
            "a.yaml:6:31: `parallelism_config_tp_size: 2` is not possible: only data-parallel ranks are sharded, so it "
            "must be 1");
  EXPECT_EQ(fault("version: 2", "parallelism_config:\n  parallelism_config_dp_shard_size: -1\n"),
            "a.yaml:6:37: `parallelism_config_dp_shard_size: -1` must be a whole number, 1 or more");
  EXPECT_EQ(fault("version: 2", "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"),
            "a.yaml:6:41: `parallelism_config_dp_replicate_size: 2` needs `parallelism_config_dp_shard_size` above 1: "
            "nothing would be sharded");
}

TEST(Accelerate, Precision) {
  const Translation v1 = translate(file_of("", "mixed_precision: bf16\n"));
  EXPECT_EQ(text_value(v1, "mixed_precision.param"), "bfloat16");
  EXPECT_FALSE(v1.given.contains("mixed_precision.output"));
  const Translation fp8 = translate(file_of("version: 2", "mixed_precision: FP8\n"));
  EXPECT_EQ(text_value(fp8, "mixed_precision.output"), "bfloat16");
  EXPECT_TRUE(notes_name(fp8, "mixed_precision"));
  EXPECT_FALSE(translate(file_of("", "mixed_precision: no\n")).given.contains("mixed_precision.param"));
  EXPECT_EQ(text_value(translate(file_of("", "fp16: true\n")), "mixed_precision.param"), "float16");
}

TEST(Accelerate, Loading) {
  EXPECT_EQ(text_value(translate(file_of("version: 2\nfsdp_cpu_ram_efficient_loading: false")), "load.mode"), "full");
  EXPECT_EQ(text_value(translate(file_of("fsdp_cpu_ram_efficient_loading: false")), "load.mode"), "broadcast");
  EXPECT_EQ(text_value(translate(file_of("fsdp_cpu_ram_efficient_loading: false\nfsdp_sync_module_states: false")),
                       "load.mode"),
            "full");
  // The text "false" passes the launcher, and the plugin then forces true.
  const Translation forced = translate(file_of("fsdp_sync_module_states: 'false'"));
  EXPECT_EQ(text_value(forced, "load.mode"), "broadcast");
  EXPECT_TRUE(notes_name(forced, "fsdp_sync_module_states"));
}

TEST(Accelerate, ClassNames) {
  const Translation list =
      translate(file_of("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\nfsdp_transformer_layer_cls_to_wrap: [A, B]"));
  EXPECT_EQ(value<std::vector<std::string>>(list, "wrap.layer_classes"), (std::vector<std::string>{"A", "B"}));
  EXPECT_TRUE(notes_name(list, "fsdp_transformer_layer_cls_to_wrap"));
  const Translation tight =
      translate(file_of("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\nfsdp_transformer_layer_cls_to_wrap: 'A,B'"));
  EXPECT_EQ(value<std::vector<std::string>>(tight, "wrap.layer_classes"), (std::vector<std::string>{"A", "B"}));
  EXPECT_TRUE(tight.notes.empty());
  const Translation without = translate(file_of("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"));
  EXPECT_FALSE(without.given.contains("wrap.layer_classes"));
  EXPECT_EQ(text_of([&] {
              make_plan(
                  test::small_model().tree(),
                  resolve({}, translate(file_of("version: 2\nfsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP")).given),
                  2);
            }),
            "a.yaml:5:26: `wrap.policy = \"transformer\"` needs `wrap.layer_classes` beside it");
}

TEST(Accelerate, KeysNobodyReadsAreNoted) {
  const Translation translation = translate(file_of("fsdp_backward_prefetch_policy: BACKWARD_PRE"));
  EXPECT_TRUE(notes_name(translation, "fsdp_backward_prefetch_policy"));
  EXPECT_EQ(value<int64_t>(translation, "prefetch.backward"), 0);
}

TEST(Accelerate, OffloadAndCheckpointing) {
  const Translation v1 = translate(file_of("fsdp_offload_params: true\nfsdp_activation_checkpointing: true"));
  EXPECT_TRUE(value<bool>(v1, "offload.params"));
  EXPECT_FALSE(v1.given.contains("offload.pin_memory"));
  EXPECT_TRUE(value<bool>(v1, "activation_checkpointing"));
  const Translation v2 =
      translate(file_of("version: 2\nfsdp_offload_params: true\nfsdp_auto_wrap_policy: size_based_wrap\n"
                        "fsdp_activation_checkpointing: true\nfsdp_activation_checkpointing_offload: true"));
  EXPECT_TRUE(value<bool>(v2, "offload.pin_memory"));
  EXPECT_TRUE(notes_name(v2, "fsdp_activation_checkpointing_offload"));
}

/// A TOML file beside a YAML file, in the folder of the test.
class AccelerateFile : public testing::Test {
 protected:
  void SetUp() override { folder_ = testing::TempDir(); }

  std::string write(const std::string& name, const std::string& text) const {
    return test::write_file(folder_ + name, text);
  }

  Config load(const std::string& yaml, const std::string& toml, const std::vector<std::string>& overrides = {}) const {
    write("fsdp2_accelerate.yaml", yaml);
    return load_config(
        write("fsdp2_train.toml", "[fsdp]\ndialect = 'accelerate'\nconfig = 'fsdp2_accelerate.yaml'\n" + toml),
        overrides);
  }

  std::string folder_;
};

TEST_F(AccelerateFile, KeysBesideConfigOverride) {
  const Config config = load(kAsWritten, "strategy = 'shard_grad_op'\nload.mode = 'full'\n", {"wrap.policy=every"});
  EXPECT_EQ(config.options.strategy, "shard_grad_op");
  EXPECT_EQ(config.options.reshard_after_forward, ReshardAfterForward(false));
  EXPECT_EQ(config.options.load_mode, LoadMode::kFull);
  EXPECT_EQ(config.options.wrap.policy, WrapPolicy::kEvery);
  EXPECT_TRUE(config.options.dialect.empty());
  EXPECT_TRUE(config.options.config.empty());
  EXPECT_NO_THROW(make_plan(test::small_model().tree(), config, 2));
}

constexpr const char* kVersion1 = R"(distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_forward_prefetch: false
  fsdp_state_dict_type: LOCAL_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
mixed_precision: 'no'
num_machines: 1
num_processes: 2
)";

TEST_F(AccelerateFile, Version1IsPrintedAndNotRun) {
  const Config config = load(kVersion1, "");
  EXPECT_EQ(to_toml(config.options),
            "[fsdp]\nversion = 1\nstrategy = \"shard_grad_op\"\nreshard_after_forward = false\n"
            "wrap.policy = \"transformer\"\nwrap.layer_classes = [\"Block\"]\nprefetch.forward = 0\n"
            "load.mode = \"broadcast\"\n");
  EXPECT_EQ(layout_of(config.options), Layout::kFlat);
  EXPECT_TRUE(config.warning.empty());
  EXPECT_EQ(error_of([&] { make_plan(test::small_model().tree(), config, 2); }).details().key, "version");
}

TEST_F(AccelerateFile, Version1ConvertsAndRuns) {
  const Config config = load(kVersion1, "version = 2\n");
  EXPECT_EQ(config.options.version, 2);
  EXPECT_EQ(config.options.strategy, "shard_grad_op");
  EXPECT_EQ(config.options.prefetch, PrefetchOptions{});
  EXPECT_EQ(config.options.checkpoint_kind, CheckpointKind::kSharded);
  EXPECT_EQ(layout_of(config.options), Layout::kRagged);
  EXPECT_EQ(config.warning, folder_ +
                                "fsdp2_accelerate.yaml: obsolete under version 2, to be removed: "
                                "`fsdp_sharding_strategy` (line 5), `fsdp_backward_prefetch` (line 6), "
                                "`fsdp_forward_prefetch` (line 7), `fsdp_sync_module_states` (line 9), "
                                "`fsdp_use_orig_params` (line 10)");
  const Plan plan = make_plan(test::small_model().tree(), config, 2);
  EXPECT_EQ(plan.strategy, "fsdp2.shard_grad_op");
  EXPECT_EQ(plan.units.size(), 3U);
}

TEST_F(AccelerateFile, AnEmptyVersion1FileConvertsAndRuns) {
  const Config config = load("distributed_type: FSDP\n", "version = 2\n");
  EXPECT_TRUE(config.warning.empty());
  EXPECT_EQ(make_plan(test::small_model().tree(), config, 4).strategy, "fsdp2.full_shard");
}

TEST_F(AccelerateFile, NoShardKeepsItsMeaning) {
  const Config config =
      load("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: NO_SHARD\n", "version = 2\n");
  EXPECT_EQ(make_plan(test::small_model().tree(), config, 4).mesh, (Mesh{4, 1}));
}

TEST_F(AccelerateFile, Version2DoesNotBecomeVersion1) {
  EXPECT_EQ(text_of([&] { load(kAsWritten, "version = 1\n"); }),
            folder_ + "fsdp2_accelerate.yaml:14:17: `fsdp_version: 2` cannot be converted to version 1");
}

TEST_F(AccelerateFile, WhatIsNotBuiltIsRefusedWhereItWasWritten) {
  const Config config =
      load("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n", "");
  EXPECT_EQ(text_of([&] { make_plan(test::small_model().tree(), config, 2); }),
            folder_ +
                "fsdp2_accelerate.yaml:4:24: `offload.params` (from `fsdp_offload_params`) has a value that "
                "is not built yet: only false is accepted now");
}

TEST_F(AccelerateFile, DialectAndFileMustExist) {
  const std::string toml = write("fsdp2_train.toml", "[fsdp]\ndialect = 'acelerate'\nconfig = 'fsdp2_none.yaml'\n");
  write("fsdp2_none.yaml", "distributed_type: FSDP\n");
  EXPECT_EQ(text_of([&] { load_config(toml); }),
            toml +
                ":2:11: no dialect is called `acelerate`; accepted now: \"accelerate\", \"transformers\", "
                "\"torchtitan\", \"deepspeed\", \"lightning\", \"torch_fsdp1\", \"composer\", \"torchfort\"; did you "
                "mean `accelerate`?");
  const std::string overridden = text_of([&] {
    load_config(toml, std::vector<std::string>{"dialect=accelerate", "config=nowhere.yaml"});
  });
  EXPECT_EQ(overridden, "override `config=nowhere.yaml`: cannot read `" + folder_ + "nowhere.yaml`");
  EXPECT_EQ(text_of([] { load_config_text("[fsdp]\nconfig = 'nowhere.yaml'\n", "t.toml"); }),
            "t.toml:2:10: cannot read `nowhere.yaml`");
  EXPECT_EQ(text_of([] { load_config_text("[fsdp]\ndialect = 'accelerate'\n", "t.toml"); }),
            "t.toml:2:11: `dialect` needs `config` beside it");
  EXPECT_EQ(text_of([] { load_config_text("[fsdp]\ndialect = 'accelerate'\nconfig = '/dev/zero'\n", "t.toml"); }),
            "t.toml:3:10: `/dev/zero` is larger than 1 MiB, which no configuration is");
}

}  // namespace
}  // namespace fsdp2
