
#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "registry/config.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::list_value;
using test::notes_name;
using test::text_of;
using test::text_value;
using test::value;

Translation translate(const std::string& json, const TranslationContext& context = {}) {
  return translate_transformers(json, "args.json", context);
}

/// fsdp_config with these keys.
Translation config(const std::string& keys) {
  return translate("{" + keys + "}");
}

void expect_fault(const std::string& json, const std::string& sentence) {
  test::expect_fault([&] { translate(json); }, "args.json:1:", sentence);
}

void expect_config_fault(const std::string& keys, const std::string& sentence) {
  expect_fault("{" + keys + "}", sentence);
}

TEST(Transformers, Defaults) {
  const Translation translation = config("");
  EXPECT_EQ(value<int64_t>(translation, "version"), 2);
  EXPECT_EQ(text_value(translation, "strategy"), "full_shard");
  EXPECT_TRUE(value<bool>(translation, "reshard_after_forward"));
  EXPECT_EQ(text_value(translation, "wrap.policy"), "transformer");
  EXPECT_EQ(text_value(translation, "load.mode"), "full");
  EXPECT_EQ(text_value(translation, "checkpoint.kind"), "full");
  EXPECT_EQ(translation.given.size(), 6U);
  EXPECT_TRUE(translation.notes.empty());
  EXPECT_TRUE(translation.warning.empty());
}

TEST(Transformers, DefaultsOfVersion1) {
  const Translation translation = config("\"version\": \"1\"");
  EXPECT_EQ(value<int64_t>(translation, "version"), 1);
  EXPECT_EQ(text_value(translation, "strategy"), "full_shard");
  EXPECT_EQ(text_value(translation, "load.mode"), "broadcast");
  EXPECT_EQ(text_value(translation, "checkpoint.kind"), "full");
  EXPECT_EQ(value<int64_t>(translation, "prefetch.forward"), 0);
  EXPECT_EQ(value<int64_t>(translation, "prefetch.backward"), 0);
  EXPECT_TRUE(translation.notes.empty());
  EXPECT_EQ(translation.given.size(), 8U);
}

TEST(Transformers, FsdpMustBeAskedFor) {
  const std::string sentence = "no FSDP is requested";
  for (const char* off : {"false", "\"\"", "null", "[]", "0"}) {
    expect_fault("{\"fsdp\": " + std::string(off) + ", \"fsdp_config\": {}}", sentence);
  }
  expect_fault(R"({"fsdp_config": {"version": 2}})", sentence);
  expect_fault(R"({"output_dir": "out", "bf16": true})", sentence);
  EXPECT_NO_THROW(translate(R"({"fsdp": true})"));
  EXPECT_NO_THROW(translate(R"({"fsdp": true, "fsdp_config": null})"));
}

TEST(Transformers, ReshardOfVersion2) {
  EXPECT_EQ(text_value(config("\"reshard_after_forward\": false"), "strategy"), "shard_grad_op");
  EXPECT_EQ(text_value(config("\"fsdp_reshard_after_forward\": \"OFF\""), "strategy"), "shard_grad_op");
  EXPECT_EQ(text_value(config("\"reshard_after_forward\": 1"), "strategy"), "full_shard");
  expect_config_fault("\"reshard_after_forward\": \"FULL_SHARD\"", "must be true or false under version 2");
  expect_config_fault("\"reshard_after_forward\": 8", "must be true or false under version 2");
  expect_config_fault("\"reshard_after_forward\": null", "must have a value");
}

TEST(Transformers, StrategiesOfVersion1) {
  const Translation named = config("\"version\": 1, \"reshard_after_forward\": \"shard_grad_op\"");
  EXPECT_EQ(text_value(named, "strategy"), "shard_grad_op");
  EXPECT_TRUE(notes_name(named, "reshard_after_forward"));
  const Translation hybrid = config("\"version\": 1, \"reshard_after_forward\": \"HYBRID_SHARD\"");
  EXPECT_EQ(text_value(hybrid, "strategy"), "hybrid_shard");
  EXPECT_FALSE(hybrid.given.contains("mesh.shard"));
  const Translation by_word = translate(R"({"fsdp": "no_shard", "fsdp_config": {"version": 1}})");
  EXPECT_EQ(text_value(by_word, "strategy"), "no_shard");
  EXPECT_TRUE(notes_name(by_word, "fsdp"));
  expect_config_fault("\"version\": 1, \"reshard_after_forward\": true", "is a boolean, which only version 2 has");
  expect_config_fault("\"version\": 1, \"reshard_after_forward\": \"NO_RESHARD\"", "did you mean `NO_SHARD`?");
  expect_config_fault("\"version\": 1, \"reshard_after_forward\": \"HYBRID_SHARD\", \"auto_wrap_policy\": \"NO_WRAP\"",
                      "needs an auto wrap policy");
  expect_config_fault("\"version\": 3", "there are 1 and 2");
  expect_config_fault("\"version\": null", "must have a value");
}

TEST(Transformers, WordsOfFsdp) {
  const Translation words = translate(R"({"fsdp": "shard_grad_op offload  auto_wrap"})");
  EXPECT_EQ(text_value(words, "strategy"), "shard_grad_op");
  EXPECT_TRUE(value<bool>(words, "offload.params"));
  EXPECT_TRUE(value<bool>(words, "offload.pin_memory"));
  const Translation list = translate(R"({"fsdp": ["full_shard", "shard_grad_op"]})");
  EXPECT_EQ(text_value(list, "strategy"), "full_shard");
  const Translation explicit_keys = translate(
      R"({"fsdp": "shard_grad_op offload", "fsdp_config": {"reshard_after_forward": true, "cpu_offload": false}})");
  EXPECT_EQ(text_value(explicit_keys, "strategy"), "full_shard");
  EXPECT_FALSE(explicit_keys.given.contains("offload.params"));
  for (const char* word : {"no_shard", "hybrid_shard", "hybrid_shard_zero2", "FULL_SHARD"}) {
    expect_fault("{\"fsdp\": \"" + std::string(word) + "\"}", "which only version 1 has");
  }
  expect_fault(R"({"fsdp": "true"})", "has the unknown word \"true\"");
  expect_fault(R"({"fsdp": "full_shrad"})", "did you mean `full_shard`?");
  EXPECT_EQ(text_value(translate(R"({"fsdp": "SHARD_GRAD_OP", "fsdp_config": {"version": 1}})"), "strategy"),
            "shard_grad_op");
}

TEST(Transformers, Offloading) {
  EXPECT_TRUE(value<bool>(config("\"cpu_offload\": true"), "offload.params"));
  EXPECT_FALSE(config("\"cpu_offload\": false").given.contains("offload.params"));
  const Translation first = config("\"version\": 1, \"cpu_offload\": true");
  EXPECT_FALSE(first.given.contains("offload.pin_memory"));
  expect_config_fault("\"cpu_offload\": \"false\"", "transformers takes any text for true");
}

TEST(Transformers, Wrapping) {
  EXPECT_EQ(list_value(config("\"transformer_layer_cls_to_wrap\": \"A,B\""), "wrap.layer_classes"),
            (std::vector<std::string>{"A", "B"}));
  const Translation list = config("\"transformer_layer_cls_to_wrap\": [\"A\", \" B\"]");
  EXPECT_EQ(list_value(list, "wrap.layer_classes"), (std::vector<std::string>{"A", "B"}));
  EXPECT_TRUE(notes_name(list, "transformer_layer_cls_to_wrap"));
  const Translation size = config("\"auto_wrap_policy\": \"SIZE_BASED_WRAP\", \"min_num_params\": 2000");
  EXPECT_EQ(text_value(size, "wrap.policy"), "size");
  EXPECT_EQ(value<int64_t>(size, "wrap.min_num_params"), 2000);
  EXPECT_EQ(value<int64_t>(config("\"auto_wrap_policy\": \"SIZE_BASED_WRAP\""), "wrap.min_num_params"), 0);
  const Translation none = config("\"auto_wrap_policy\": \"NO_WRAP\", \"transformer_layer_cls_to_wrap\": \"A\"");
  EXPECT_EQ(text_value(none, "wrap.policy"), "none");
  EXPECT_TRUE(notes_name(none, "transformer_layer_cls_to_wrap"));
  const Translation alone = config("\"min_num_params\": 2000");
  EXPECT_FALSE(alone.given.contains("wrap.min_num_params"));
  EXPECT_TRUE(notes_name(alone, "min_num_params"));
  expect_config_fault("\"auto_wrap_policy\": \"size_based_wrap\"", "in capitals; did you mean `SIZE_BASED_WRAP`?");
  expect_config_fault("\"auto_wrap_policy\": null", "must have a value");
  for (const char* wrong : {"\"1e8\"", "1.5", "null"}) {
    expect_config_fault("\"auto_wrap_policy\": \"SIZE_BASED_WRAP\", \"min_num_params\": " + std::string(wrong),
                        "must be a whole number");
  }
}

TEST(Transformers, LoadingAndSaving) {
  EXPECT_EQ(text_value(config("\"cpu_ram_efficient_loading\": \"True\""), "load.mode"), "broadcast");
  EXPECT_EQ(text_value(config("\"version\": 1, \"sync_module_states\": false"), "load.mode"), "full");
  const Translation forced =
      config("\"version\": 1, \"sync_module_states\": \"no\", \"cpu_ram_efficient_loading\": true");
  EXPECT_EQ(text_value(forced, "load.mode"), "broadcast");
  EXPECT_TRUE(notes_name(forced, "sync_module_states"));
  EXPECT_EQ(text_value(config("\"state_dict_type\": \"sharded_state_dict\""), "checkpoint.kind"), "sharded");
  EXPECT_EQ(text_value(config("\"state_dict_type\": null"), "checkpoint.kind"), "sharded");
  EXPECT_EQ(text_value(config("\"version\": 1, \"state_dict_type\": \"3\""), "checkpoint.kind"), "sharded");
  const Translation local = config("\"version\": 1, \"state_dict_type\": \"LOCAL_STATE_DICT\"");
  EXPECT_TRUE(notes_name(local, "state_dict_type"));
  expect_config_fault("\"state_dict_type\": \"LOCAL_STATE_DICT\"", "does not exist under version 2");
  expect_config_fault("\"cpu_ram_efficient_loading\": \"maybe\"", "must be true or false");
}

TEST(Transformers, PrefetchOfVersion1) {
  const Translation both =
      config("\"version\": 1, \"forward_prefetch\": true, \"backward_prefetch\": \"backward_post\"");
  EXPECT_EQ(value<int64_t>(both, "prefetch.forward"), 1);
  EXPECT_EQ(value<int64_t>(both, "prefetch.backward"), 1);
  EXPECT_TRUE(notes_name(both, "backward_prefetch"));
  expect_config_fault("\"version\": 1, \"backward_prefetch\": \"BACKWARD\"", "must be one of");
}

TEST(Transformers, OneWarningUnderVersion2) {
  const Translation translation = config(
      "\n\"limit_all_gathers\": true,\n\"fsdp_forward_prefetch\": false, \"backward_prefetch\": \"x\",\n"
      "\"use_orig_params\": true, \"fsdp_sync_module_states\": 1, \"sharding_strategy\": 1, \"forward_prefetch\": "
      "null");
  EXPECT_EQ(translation.warning,
            "args.json: obsolete under version 2, to be removed: `limit_all_gathers` (line 2), `fsdp_forward_prefetch` "
            "(line 3), `backward_prefetch` (line 3), `use_orig_params` (line 4), `fsdp_sync_module_states` (line 4), "
            "`sharding_strategy` (line 4)");
  EXPECT_TRUE(translation.notes.empty());
  const Translation first = config("\"version\": 1, \"use_orig_params\": true, \"sharding_strategy\": \"NO_SHARD\"");
  EXPECT_TRUE(first.warning.empty());
  EXPECT_TRUE(notes_name(first, "sharding_strategy"));
  EXPECT_EQ(text_value(first, "strategy"), "full_shard");
}

TEST(Transformers, KeysNobodyReadsAreNoted) {
  const Translation translation = config(
      "\"fsdp_offload_params\": true, \"ignored_modules\": \"x\", \"activation_checkpointing_offload\": true, "
      "\"cpu_ofload\": true, \"xla_fsdp_grad_ckpt\": true, \"xla_fsdp_settings\": {}, \"xla_fsdp_v2\": false");
  for (const char* key : {"fsdp_offload_params", "ignored_modules", "activation_checkpointing_offload", "cpu_ofload",
                          "xla_fsdp_grad_ckpt", "xla_fsdp_settings", "xla_fsdp_v2"}) {
    EXPECT_TRUE(notes_name(translation, key)) << key;
  }
  EXPECT_TRUE(notes_name(translation, "did you mean `cpu_offload`?"));
  EXPECT_FALSE(translation.given.contains("offload.params"));
  EXPECT_FALSE(translation.given.contains("ignored_modules"));
  expect_config_fault("\"xla\": true", "PyTorch/XLA");
}

TEST(Transformers, ThePrefixWins) {
  EXPECT_EQ(value<int64_t>(config("\"fsdp_version\": 1, \"version\": 2"), "version"), 1);
  EXPECT_EQ(value<int64_t>(config("\"version\": 2, \"fsdp_version\": 1"), "version"), 1);
}

TEST(Transformers, Checkpointing) {
  EXPECT_TRUE(value<bool>(config("\"activation_checkpointing\": \"yes\""), "activation_checkpointing"));
  EXPECT_FALSE(value<bool>(config("\"activation_checkpointing\": false"), "activation_checkpointing"));
  for (const char* name : {"activation_checkpointing", "gradient_checkpointing"}) {
    const Translation argument = translate("{\"fsdp\": true, \"" + std::string(name) + "\": true}");
    EXPECT_TRUE(value<bool>(argument, "activation_checkpointing"));
    EXPECT_TRUE(notes_name(argument, name));
    expect_fault(
        "{\"fsdp\": true, \"" + std::string(name) + "\": true, \"fsdp_config\": {\"activation_checkpointing\": true}}",
        "cannot stand beside `activation_checkpointing` of fsdp_config");
  }
  EXPECT_NO_THROW(translate(
      R"({"fsdp": true, "gradient_checkpointing": false, "fsdp_config": {"activation_checkpointing": true}})"));
  expect_config_fault("\"activation_checkpointing\": true, \"auto_wrap_policy\": \"NO_WRAP\"", "makes units");
}

TEST(Transformers, Arguments) {
  const Translation bf16 = translate(R"({"fsdp": true, "bf16": true, "max_grad_norm": 0.5})");
  for (const char* key : {"param", "reduce", "output"}) {
    EXPECT_EQ(text_value(bf16, "mixed_precision." + std::string(key)), "bfloat16");
  }
  EXPECT_TRUE(value<bool>(bf16, "mixed_precision.cast_forward_inputs"));
  EXPECT_EQ(value<double>(bf16, "gradient.clip_norm"), 0.5);
  const Translation fp16 = translate(R"({"fsdp": true, "fp16": true, "bf16": false, "fsdp_config": {"version": 1}})");
  EXPECT_EQ(text_value(fp16, "mixed_precision.param"), "float16");
  EXPECT_FALSE(fp16.given.contains("mixed_precision.output"));
  EXPECT_FALSE(translate(R"({"fsdp": true, "max_grad_norm": 0})").given.contains("gradient.clip_norm"));
  EXPECT_FALSE(translate(R"({"fsdp": true})").given.contains("gradient.clip_norm"));
  expect_fault(R"({"fsdp": true, "bf16": true, "fp16": true})", "only one can be on");
  expect_fault(R"({"fsdp": true, "bf16": "true"})", "must be true or false");
  expect_fault(R"({"fsdp": true, "max_grad_norm": "1"})", "must be a number");
}

TEST(Transformers, VersionsConvert) {
  const Translation converted = translate(R"({"version": 1, "backward_prefetch": "BACKWARD_PRE",
      "reshard_after_forward": "shard_grad_op", "cpu_offload": true})",
                                          {.version = 2});
  EXPECT_EQ(value<int64_t>(converted, "version"), 2);
  EXPECT_EQ(text_value(converted, "strategy"), "shard_grad_op");
  EXPECT_FALSE(converted.given.contains("prefetch.backward"));
  EXPECT_TRUE(value<bool>(converted, "offload.pin_memory"));
  EXPECT_EQ(converted.obsolete, std::vector<std::string>{"backward_prefetch"});
  EXPECT_EQ(text_of([] { translate("{}", {.version = 1}); }),
            "args.json: `version` is 2 by default, and cannot be converted to version 1");
}

TEST(Transformers, ConfigInAFileOfItsOwn) {
  const std::string folder = testing::TempDir();
  test::write_file(folder + "fsdp2_fsdp_config.json", "{\n  \"reshard_after_forward\": 8}");
  test::write_file(folder + "fsdp2_args.json", R"({"fsdp": true, "fsdp_config": "fsdp2_fsdp_config.json"})");
  const std::string toml = "[fsdp]\ndialect = 'transformers'\nconfig = 'fsdp2_args.json'\n";
  EXPECT_EQ(text_of([&] { load_config_text(toml, folder + "fsdp2_t.toml"); }),
            folder + "fsdp2_fsdp_config.json:2:28: `reshard_after_forward: 8` must be true or false under version 2");
  test::write_file(folder + "fsdp2_args.json", R"({"fsdp": true, "fsdp_config": "fsdp2_nowhere.json"})");
  EXPECT_EQ(text_of([&] { load_config_text(toml, folder + "fsdp2_t.toml"); }),
            folder + "fsdp2_args.json:1:31: cannot read `" + folder + "fsdp2_nowhere.json`");
  expect_fault(R"({"fsdp": true, "fsdp_config": "a.json"})", "names a file, which cannot be read here");
  expect_fault(R"({"fsdp": true, "fsdp_config": [1]})", "must be a map, or the path of a JSON file");
}

TEST(Transformers, KeysWithoutAFile) {
  const std::vector<HostKey> keys{{"fsdp", "[\"shard_grad_op\"]"}, {"bf16", "True"}, {"fsdp_config.version", "2"}};
  const Translation translation = translate_transformers_keys(keys, "args", {});
  EXPECT_EQ(text_value(translation, "strategy"), "shard_grad_op");
  EXPECT_EQ(text_value(translation, "mixed_precision.param"), "bfloat16");
  const std::vector<HostKey> wrong{{"fsdp", "true"}, {"fsdp_config.reshard_after_forward", "8"}};
  EXPECT_EQ(text_of([&] { translate_transformers_keys(wrong, "args", {}); }),
            "args: `fsdp_config.reshard_after_forward=8` must be true or false under version 2");
}

TEST(Transformers, JsonIsStrict) {
  expect_fault("{\"version\": 2,}", "this is not JSON");
  EXPECT_EQ(text_of([] { translate("3"); }), "args.json:1:1: the file must be a map");
}

}  // namespace
}  // namespace fsdp2
