// Accelerate without its launch file: the plugin's keywords and variables. And its DeepSpeed block.

#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::list_value;
using test::notes_name;
using test::text_of;
using test::text_value;
using test::value;

/// From "name=value".
Translation plugin(const std::vector<std::string>& pairs, const TranslationContext& context = {}) {
  std::vector<HostKey> keys;
  for (const std::string& pair : pairs) keys.push_back(host_key_of(pair));
  return translate_accelerate_keys(keys, "plugin", context);
}

Translation variables(std::vector<std::string> pairs) {
  pairs.insert(pairs.begin(), {"PATH=/bin", "ACCELERATE_USE_FSDP=true", "HOME=fsdp_version"});
  return plugin(pairs);
}

std::string fault(const std::vector<std::string>& pairs) {
  return text_of([&] { plugin(pairs); });
}

TEST(AccelerateKeys, DefaultsOfTheVariables) {
  const Translation v1 = variables({});
  EXPECT_EQ(value<int64_t>(v1, "version"), 1);
  EXPECT_EQ(text_value(v1, "strategy"), "full_shard");
  EXPECT_EQ(text_value(v1, "load.mode"), "full");
  EXPECT_EQ(text_value(v1, "checkpoint.kind"), "full");
  EXPECT_EQ(text_value(v1, "wrap.policy"), "none");
  EXPECT_EQ(value<int64_t>(v1, "prefetch.backward"), 0);
  EXPECT_EQ(v1.given.size(), 8U);
  const Translation v2 = variables({"FSDP_VERSION=2"});
  EXPECT_EQ(text_value(v2, "load.mode"), "full");
  EXPECT_EQ(text_value(v2, "checkpoint.kind"), "sharded");
  EXPECT_TRUE(value<bool>(v2, "reshard_after_forward"));
}

TEST(AccelerateKeys, DefaultsOfTheKeywords) {
  const Translation v2 = plugin({"fsdp_version=2"});
  EXPECT_EQ(text_value(v2, "strategy"), "full_shard");
  EXPECT_EQ(text_value(v2, "load.mode"), "full");
  const Translation size = plugin({"fsdp_version=2", "auto_wrap_policy=size_based_wrap"});
  EXPECT_EQ(value<int64_t>(size, "wrap.min_num_params"), 0);
}

TEST(AccelerateKeys, VariablesOfEveryRow) {
  const Translation translation =
      variables({"FSDP_VERSION=2", "FSDP_RESHARD_AFTER_FORWARD=off", "FSDP_AUTO_WRAP_POLICY=transformer_based_wrap",
                 "FSDP_TRANSFORMER_CLS_TO_WRAP=A,B", "FSDP_OFFLOAD_PARAMS=True", "FSDP_STATE_DICT_TYPE=1",
                 "FSDP_CPU_RAM_EFFICIENT_LOADING=1", "FSDP_ACTIVATION_CHECKPOINTING=true",
                 "FSDP_IGNORED_MODULES=head.*", "ACCELERATE_MIXED_PRECISION=bf16", "FSDP_MIN_NUM_PARAMS=5"});
  EXPECT_EQ(text_value(translation, "strategy"), "shard_grad_op");
  EXPECT_EQ(list_value(translation, "wrap.layer_classes"), (std::vector<std::string>{"A", "B"}));
  EXPECT_TRUE(value<bool>(translation, "offload.params"));
  EXPECT_TRUE(value<bool>(translation, "offload.pin_memory"));
  EXPECT_EQ(text_value(translation, "checkpoint.kind"), "full");
  EXPECT_EQ(text_value(translation, "load.mode"), "broadcast");
  EXPECT_TRUE(value<bool>(translation, "activation_checkpointing"));
  EXPECT_EQ(list_value(translation, "ignored_modules"), std::vector<std::string>{"head.*"});
  EXPECT_EQ(text_value(translation, "mixed_precision.output"), "bfloat16");
  EXPECT_TRUE(notes_name(translation, "FSDP_MIN_NUM_PARAMS=5"));
  const Translation v1 =
      variables({"FSDP_SHARDING_STRATEGY=2", "FSDP_BACKWARD_PREFETCH=BACKWARD_PRE", "FSDP_FORWARD_PREFETCH=true",
                 "FSDP_SYNC_MODULE_STATES=true", "FSDP_AUTO_WRAP_POLICY=SIZE_BASED_WRAP", "FSDP_MIN_NUM_PARAMS=100"});
  EXPECT_EQ(text_value(v1, "strategy"), "shard_grad_op");
  EXPECT_EQ(value<int64_t>(v1, "prefetch.backward"), 1);
  EXPECT_EQ(value<int64_t>(v1, "prefetch.forward"), 1);
  EXPECT_EQ(text_value(v1, "load.mode"), "broadcast");
  EXPECT_EQ(value<int64_t>(v1, "wrap.min_num_params"), 100);
}

TEST(AccelerateKeys, VariablesThatNobodyReads) {
  const Translation leftovers = variables({"FSDP_VERSION=2", "FSDP_SHARDING_STRATEGY=NO_SHARD",
                                           "FSDP_FORWARD_PREFETCH=false", "FSDP_RESHARD_AFTER_FORWRD=false"});
  EXPECT_EQ(leftovers.obsolete, (std::vector<std::string>{"FSDP_FORWARD_PREFETCH", "FSDP_SHARDING_STRATEGY"}));
  EXPECT_EQ(leftovers.warning,
            "plugin: obsolete under version 2, to be removed: `FSDP_FORWARD_PREFETCH`, `FSDP_SHARDING_STRATEGY`");
  EXPECT_TRUE(notes_name(leftovers, "did you mean `FSDP_RESHARD_AFTER_FORWARD`?"));
  EXPECT_EQ(text_value(leftovers, "strategy"), "full_shard");
}

TEST(AccelerateKeys, FsdpMustBeAskedFor) {
  for (const std::vector<std::string>& pairs :
       {std::vector<std::string>{"FSDP_VERSION=2"}, {"FSDP_VERSION=2", "ACCELERATE_USE_FSDP=false"}, {}}) {
    EXPECT_EQ(fault(pairs).find("plugin: no FSDP is requested: `ACCELERATE_USE_FSDP=true` is missing"), 0U);
  }
}

TEST(AccelerateKeys, KeywordsWinOverVariables) {
  const Translation translation =
      plugin({"FSDP_VERSION=1", "FSDP_OFFLOAD_PARAMS=true", "fsdp_version=2", "reshard_after_forward=None"});
  EXPECT_EQ(value<int64_t>(translation, "version"), 2);
  EXPECT_TRUE(value<bool>(translation, "offload.params"));
  EXPECT_TRUE(value<bool>(translation, "reshard_after_forward"));
}

TEST(AccelerateKeys, KeywordsOfEveryRow) {
  const Translation translation =
      plugin({"fsdp_version=2", "reshard_after_forward=False", "auto_wrap_policy=transformer_based_wrap",
              "transformer_cls_names_to_wrap=['A', 'B']", "cpu_offload=true", "state_dict_type=FULL_STATE_DICT",
              "cpu_ram_efficient_loading=true", "activation_checkpointing=true", "ignored_modules='head.*'",
              "mixed_precision_policy=bf16", "limit_all_gathers=true", "param_init_fn=f", "state_dict_config=c"});
  EXPECT_EQ(text_value(translation, "strategy"), "shard_grad_op");
  EXPECT_EQ(list_value(translation, "wrap.layer_classes"), (std::vector<std::string>{"A", "B"}));
  EXPECT_TRUE(value<bool>(translation, "offload.pin_memory"));
  EXPECT_EQ(text_value(translation, "checkpoint.kind"), "full");
  EXPECT_EQ(text_value(translation, "load.mode"), "broadcast");
  EXPECT_EQ(text_value(translation, "mixed_precision.output"), "bfloat16");
  EXPECT_EQ(translation.obsolete, std::vector<std::string>{"limit_all_gathers"});
  EXPECT_TRUE(translation.notes.empty());
}

TEST(AccelerateKeys, ErrorsOfKeywords) {
  EXPECT_EQ(fault({"fsdp_version=1", "reshard_after_forward=true"})
                .find("plugin: `reshard_after_forward=true` is a boolean, which only version 2 has"),
            0U);
  EXPECT_EQ(fault({"fsdp_version=2", "reshard_after_forward=1"}),
            "plugin: `reshard_after_forward=1` must be true or false under version 2");
  EXPECT_NO_THROW(plugin({"fsdp_version=2", "reshard_after_forward='1'"}));
  EXPECT_EQ(fault({"fsdp_version=2", "sharding_strategy=FULL_SHARD"}),
            "plugin: `sharding_strategy=FULL_SHARD` needs `reshard_after_forward` beside it under version 2");
  EXPECT_EQ(plugin({"fsdp_version=2", "sharding_strategy=FULL_SHARD", "reshard_after_forward=true"}).obsolete,
            std::vector<std::string>{"sharding_strategy"});
  EXPECT_EQ(fault({"sharding_strategy=NO_SHARD", "reshard_after_forward=NO_RESHARD"})
                .find("plugin: `reshard_after_forward=NO_RESHARD` must be one of"),
            0U);
  EXPECT_EQ(
      text_of([] { variables({"FSDP_USE_ORIG_PARAMS=maybe"}); }).find("plugin: `FSDP_USE_ORIG_PARAMS=maybe` must"), 0U);
  EXPECT_EQ(fault({"sharding_strategy=2"}).find("plugin: `sharding_strategy=2` must be text"), 0U);
  EXPECT_EQ(fault({"fsdp_version=2", "backward_prefetch=3"}).find("plugin: `backward_prefetch=3` must be one of"), 0U);
  EXPECT_EQ(fault({"fsdp_version=2", "forward_prefetch=false"}),
            "plugin: `forward_prefetch=false` does not exist under version 2: Accelerate refuses it, also as false");
  EXPECT_EQ(fault({"fsdp_version=2", "cpu_offload='true'"}), "plugin: `cpu_offload=true` must be true or false");
  EXPECT_EQ(fault({"cpu_offload=CPUOffloadPolicy()"}).find("plugin: `cpu_offload=CPUOffloadPolicy()` is an object"),
            0U);
  EXPECT_EQ(fault({"auto_wrap_policy=SIZE_BASED_WRAP", "min_num_params=1e8"}),
            "plugin: `min_num_params=1e8` must be a whole number, 0 or more, in digits");
  EXPECT_EQ(fault({"auto_wrap_policy=SIZE_BASED_WRAP", "min_num_params='100'"}),
            "plugin: `min_num_params=100` must be a whole number, 0 or more, in digits");
  EXPECT_EQ(fault({"sync_module_states='false'"}),
            "plugin: `sync_module_states=false` must be true or false, not text: Python takes any text for true");
  EXPECT_EQ(fault({"fsdp_verson=2"}),
            "plugin: Accelerate's plugin has no keyword `fsdp_verson`; did you mean `fsdp_version`?");
  EXPECT_EQ(fault({"fsdp_version=2", "auto_wrap_policy=SIZE_BASED_WRAP", "activation_checkpointing=true"})
                .find("plugin: `activation_checkpointing=true` needs"),
            0U);
  EXPECT_EQ(fault({"sharding_strategy=HYBRID_SHARD"}).find("plugin: `sharding_strategy=HYBRID_SHARD` needs"), 0U);
}

TEST(AccelerateKeys, HybridWithoutNodes) {
  const Translation translation = plugin(
      {"sharding_strategy=HYBRID_SHARD", "auto_wrap_policy=TRANSFORMER_BASED_WRAP", "cpu_ram_efficient_loading=true"});
  EXPECT_EQ(text_value(translation, "strategy"), "hybrid_shard");
  EXPECT_FALSE(translation.given.contains("mesh.replicate"));
  EXPECT_FALSE(translation.given.contains("mesh.shard"));
  EXPECT_EQ(text_value(translation, "load.mode"), "broadcast");
  EXPECT_TRUE(notes_name(translation, "cpu_ram_efficient_loading"));
}

TEST(AccelerateKeys, DtypesOfThePolicy) {
  EXPECT_EQ(text_value(plugin({"mixed_precision_policy=fp32"}), "mixed_precision.param"), "float32");
  EXPECT_TRUE(notes_name(plugin({"mixed_precision_policy=fp8"}), "mixed_precision_policy"));
  const Translation wins = plugin({"ACCELERATE_MIXED_PRECISION=fp16", "mixed_precision_policy=bf16"});
  EXPECT_EQ(text_value(wins, "mixed_precision.param"), "bfloat16");
  const Translation table =
      plugin({"fsdp_version=2", "mixed_precision_policy.param_dtype=bf16", "mixed_precision_policy.reduce_dtype=fp32",
              "mixed_precision_policy.output_dtype=torch.float16"});
  EXPECT_EQ(text_value(table, "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(text_value(table, "mixed_precision.reduce"), "float32");
  EXPECT_EQ(text_value(table, "mixed_precision.output"), "float16");
  const Translation first =
      plugin({"mixed_precision_policy.param_dtype=bf16", "mixed_precision_policy.reduce_dtype=bf16",
              "mixed_precision_policy.buffer_dtype=bf16"});
  EXPECT_FALSE(first.given.contains("mixed_precision.output"));
  EXPECT_TRUE(notes_name(first, "mixed_precision_policy.buffer_dtype"));
  EXPECT_EQ(
      fault({"mixed_precision_policy=bfloat16"}),
      "plugin: `mixed_precision_policy=bfloat16` must be one of \"fp8\", \"fp16\", \"bf16\", \"fp32\", or a table "
      "of dtypes");
  EXPECT_EQ(fault({"mixed_precision_policy.param_dtype=bf16"})
                .find("plugin: `mixed_precision_policy=a map` needs all of \"param_dtype\""),
            0U);
  EXPECT_EQ(fault({"fsdp_version=2", "mixed_precision_policy.cast_forward_inputs=true"})
                .find("plugin: `mixed_precision_policy.cast_forward_inputs=true` is no key of it"),
            0U);
  EXPECT_EQ(fault({"mixed_precision_policy.param_dtype=int8"})
                .find("plugin: `mixed_precision_policy.param_dtype=int8` must be"),
            0U);
  EXPECT_EQ(text_of([] {
              variables({"ACCELERATE_MIXED_PRECISION=BF16"});
            }).find("plugin: `ACCELERATE_MIXED_PRECISION=BF16` must be one of"),
            0U);
}

TEST(AccelerateKeys, Mesh) {
  const std::vector<std::string> sizes{"FSDP_VERSION=2", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE=2",
                                       "PARALLELISM_CONFIG_DP_SHARD_SIZE=4"};
  EXPECT_FALSE(variables(sizes).given.contains("mesh.shard"));  // nobody reads them
  std::vector<std::string> used = sizes;
  used.emplace_back("ACCELERATE_USE_PARALLELISM_CONFIG=true");
  const Translation hybrid = variables(used);
  EXPECT_EQ(text_value(hybrid, "strategy"), "hybrid_shard");
  EXPECT_EQ(value<int64_t>(hybrid, "mesh.shard"), 4);
  const Translation keywords = plugin({"fsdp_version=2", "reshard_after_forward=false",
                                       "parallelism_config.dp_replicate_size=2", "parallelism_config.dp_shard_size=2"});
  EXPECT_EQ(text_value(keywords, "strategy"), "hybrid_shard_zero2");
  EXPECT_EQ(fault({"fsdp_version=2", "parallelism_config.tp_size=2"})
                .find("plugin: `parallelism_config.tp_size=2` is not possible"),
            0U);
  EXPECT_NE(fault({"parallelism_config.dp_shard_size=2"}).find("needs `fsdp_version: 2`"), std::string::npos);
}

TEST(AccelerateKeys, VersionsConvert) {
  const Translation translation = plugin({"sharding_strategy=SHARD_GRAD_OP", "use_orig_params=true"}, {.version = 2});
  EXPECT_EQ(value<int64_t>(translation, "version"), 2);
  EXPECT_EQ(text_value(translation, "strategy"), "shard_grad_op");
  EXPECT_EQ(translation.obsolete, (std::vector<std::string>{"use_orig_params", "sharding_strategy"}));
}

Translation launch(const std::string& block, const std::string& top = "", const TranslationContext& context = {}) {
  return translate_accelerate("distributed_type: DEEPSPEED\n" + top + "deepspeed_config:\n" + block, "a.yaml", context);
}

std::string launch_fault(const std::string& block, const std::string& top = "") {
  return text_of([&] { launch(block, top); });
}

TEST(AccelerateDeepSpeed, Defaults) {
  const Translation translation = launch("  zero3_init_flag: true\n");
  EXPECT_EQ(value<int64_t>(translation, "version"), 2);
  EXPECT_EQ(text_value(translation, "strategy"), "shard_grad_op");
  EXPECT_EQ(text_value(translation, "checkpoint.kind"), "sharded");
  // Accelerate fills in "auto" with 1.0 before it starts DeepSpeed.
  EXPECT_EQ(value<double>(translation, "gradient.clip_norm"), 1.0);
  EXPECT_EQ(translation.given.size(), 5U);
  EXPECT_TRUE(translation.notes.empty());
}

TEST(AccelerateDeepSpeed, EveryField) {
  const Translation translation = launch(
      "  zero_stage: 3\n  offload_param_device: CPU\n  offload_optimizer_device: none\n  gradient_clipping: 0.5\n"
      "  zero3_save_16bit_model: true\n  zero3_init_flag: true\n  deepspeed_multinode_launcher: standard\n",
      "mixed_precision: fp8\n");
  EXPECT_EQ(text_value(translation, "strategy"), "full_shard");
  EXPECT_TRUE(value<bool>(translation, "offload.params"));
  EXPECT_TRUE(value<bool>(translation, "offload.pin_memory"));
  EXPECT_EQ(value<double>(translation, "gradient.clip_norm"), 0.5);
  EXPECT_EQ(text_value(translation, "checkpoint.kind"), "full");
  EXPECT_EQ(text_value(translation, "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(text_value(translation, "mixed_precision.reduce"), "bfloat16");
  EXPECT_EQ(translation.notes.size(), 1U);
  EXPECT_TRUE(notes_name(translation, "mixed_precision"));
  EXPECT_EQ(text_value(launch("  zero_stage: 2\n", "mixed_precision: fp16\n"), "mixed_precision.param"), "float16");
}

TEST(AccelerateDeepSpeed, FieldsThatNobodyReads) {
  const Translation translation = launch("  zero_stag: 3\n  gradient_clipping: 0.0\n");
  EXPECT_TRUE(notes_name(translation, "did you mean `zero_stage`?"));
  // Accelerate passes a 0 over, and DeepSpeed clips at its own default.
  EXPECT_TRUE(notes_name(translation, "gradient_clipping"));
  EXPECT_EQ(value<double>(translation, "gradient.clip_norm"), 1.0);
}

TEST(AccelerateDeepSpeed, Errors) {
  EXPECT_EQ(launch_fault("  zero_stage: 4\n"), "a.yaml:3:15: `zero_stage: 4` must be 0, 1, 2 or 3");
  EXPECT_EQ(launch_fault("  zero_stage: 3\n  offload_param_device: nvme\n"),
            "a.yaml:4:25: `offload_param_device: nvme` is not possible here: parameters offload to \"cpu\"");
  EXPECT_EQ(
      launch_fault("  offload_optimizer_device: gpu\n"),
      "a.yaml:3:29: `offload_optimizer_device: gpu` must be one of \"none\", \"cpu\", \"nvme\"; did you mean `cpu`?");
  EXPECT_EQ(launch_fault("  gradient_clipping: some\n"), "a.yaml:3:22: `gradient_clipping: some` must be a number");
  EXPECT_EQ(launch_fault("  zero_stage: 2\n", "parallelism_config:\n  parallelism_config_sp_size: 2\n"),
            "a.yaml:3:31: `parallelism_config_sp_size: 2` is not possible with DeepSpeed: only data-parallel ranks are "
            "sharded, so it must be 1");
}

TEST(AccelerateDeepSpeed, AFileOfItsOwn) {
  TranslationContext context;
  std::string asked;
  context.read_file = [&](const std::string& path, const Source& /*source*/) {
    asked = path;
    return std::string("{\"zero_optimization\": {\n\"stage\": 3}, \"gradient_clipping\": \"auto\"}");
  };
  const std::string yaml = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n";
  const Translation translation = translate_accelerate(yaml, "conf/a.yaml", context);
  EXPECT_EQ(asked, "conf/ds.json");
  EXPECT_EQ(text_value(translation, "strategy"), "full_shard");
  EXPECT_EQ(translation.given.at("strategy").source.file, "conf/ds.json");
  EXPECT_EQ(translation.given.at("strategy").source.line, 2);
  EXPECT_EQ(value<double>(translation, "gradient.clip_norm"), 1.0);
  EXPECT_EQ(
      text_of([&] { translate_accelerate(yaml + "  zero_stage: 3\n", "a.yaml", context); }),
      "a.yaml:4:15: `zero_stage: 3` belongs into `ds.json`: Accelerate refuses it beside `deepspeed_config_file`");
  EXPECT_EQ(text_of([&] {
              translate_accelerate(yaml + "mixed_precision: bf16\n", "a.yaml", context);
            }).find("a.yaml:4:18: `mixed_precision: bf16` belongs into"),
            0U);
  EXPECT_EQ(text_of([&] { translate_accelerate(yaml, "a.yaml", {}); }),
            "a.yaml:3:26: `deepspeed_config_file: ds.json` names a file, which cannot be read here");
}

}  // namespace
}  // namespace fsdp2
