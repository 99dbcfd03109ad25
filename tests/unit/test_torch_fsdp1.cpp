#include "adapters/adapters.hpp"
#include "registry/config.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::list_value;
using test::notes_name;
using test::text_of;
using test::text_value;
using test::value;

Translation translate(const std::string& keywords, const TranslationContext& context = {}) {
  return translate_torch_fsdp1("{" + keywords + "}", "kw.json", context);
}

void expect_fault(const std::string& keywords, const std::string& sentence) {
  test::expect_fault([&] { translate(keywords); }, "kw.json:1:", sentence);
}

TEST(TorchFsdp1, Defaults) {
  const Translation translation = translate("");
  EXPECT_EQ(value<int64_t>(translation, "version"), 1);
  EXPECT_EQ(text_value(translation, "strategy"), "full_shard");
  EXPECT_TRUE(value<bool>(translation, "reshard_after_forward"));
  EXPECT_EQ(text_value(translation, "wrap.policy"), "none");
  EXPECT_EQ(value<int64_t>(translation, "prefetch.backward"), 1);
  EXPECT_EQ(value<int64_t>(translation, "prefetch.forward"), 0);
  EXPECT_EQ(text_value(translation, "load.mode"), "full");
  EXPECT_EQ(translation.given.size(), 7U);
  EXPECT_TRUE(translation.notes.empty());
  EXPECT_NO_THROW(resolve({}, translation.given));
}

TEST(TorchFsdp1, Strategies) {
  struct Case {
    const char* written;
    const char* strategy;
    bool reshards;
  };
  for (const Case& c : {Case{"FULL_SHARD", "full_shard", true}, Case{"SHARD_GRAD_OP", "shard_grad_op", false},
                        Case{"ShardingStrategy.NO_SHARD", "no_shard", false}}) {
    const Translation translation = translate("\"sharding_strategy\": \"" + std::string(c.written) + "\"");
    EXPECT_EQ(text_value(translation, "strategy"), c.strategy);
    EXPECT_EQ(value<bool>(translation, "reshard_after_forward"), c.reshards);
  }
  const Translation hybrid = translate(R"("sharding_strategy": "_HYBRID_SHARD_ZERO2", "auto_wrap_policy": ["Block"])");
  EXPECT_EQ(text_value(hybrid, "strategy"), "hybrid_shard_zero2");
  EXPECT_FALSE(hybrid.given.contains("mesh.shard"));
  EXPECT_EQ(text_value(translate("\"sharding_strategy\": null"), "strategy"), "full_shard");
  expect_fault(R"("sharding_strategy": "HYBRID_SHARD_ZERO2")", "did you mean `_HYBRID_SHARD_ZERO2`?");
  expect_fault(R"("sharding_strategy": "HYBRID_SHARD")", "needs `auto_wrap_policy`, `process_group` or `device_mesh`");
}

TEST(TorchFsdp1, Meshes) {
  const Translation hybrid = translate(R"("sharding_strategy": "HYBRID_SHARD", "device_mesh": [2, 4])");
  EXPECT_EQ(value<int64_t>(hybrid, "mesh.replicate"), 2);
  EXPECT_EQ(value<int64_t>(hybrid, "mesh.shard"), 4);
  const Translation flat = translate("\"device_mesh\": [8]");
  EXPECT_EQ(value<int64_t>(flat, "mesh.shard"), 8);
  EXPECT_FALSE(flat.given.contains("mesh.replicate"));
  EXPECT_TRUE(notes_name(translate("\"process_group\": \"dp\""), "process_group"));
  expect_fault(R"("sharding_strategy": "HYBRID_SHARD", "device_mesh": [8])", "must be [replicas, ranks]");
  expect_fault("\"device_mesh\": [2, 4]", "two dimensions go with the hybrid strategies");
  expect_fault("\"device_mesh\": [0]", "must hold whole numbers, 1 or more");
  expect_fault("\"device_mesh\": [1, 2, 3]", "must be [ranks] or [replicas, ranks]");
  expect_fault("\"device_mesh\": [8], \"process_group\": 1", "cannot stand beside `device_mesh`");
}

TEST(TorchFsdp1, Policies) {
  for (const char* written : {R"(["Block", "torch.nn.Linear"])", R"({"ModuleWrapPolicy": ["Block", "Linear"]})",
                              R"({"transformer": ["Block", "Linear"]})",
                              R"({"transformer_auto_wrap_policy": {"transformer_layer_cls": ["Block", "Linear"]}})"}) {
    const Translation translation = translate("\"auto_wrap_policy\": " + std::string(written));
    EXPECT_EQ(text_value(translation, "wrap.policy"), "transformer");
    EXPECT_EQ(list_value(translation, "wrap.layer_classes"), (std::vector<std::string>{"Block", "Linear"}));
  }
  for (const char* written : {"{\"size\": 2000}", R"({"size_based_auto_wrap_policy": {"min_num_params": 2000}})"}) {
    const Translation translation = translate("\"auto_wrap_policy\": " + std::string(written));
    EXPECT_EQ(text_value(translation, "wrap.policy"), "size");
    EXPECT_EQ(value<int64_t>(translation, "wrap.min_num_params"), 2000);
  }
  EXPECT_EQ(value<int64_t>(translate(R"("auto_wrap_policy": "size")"), "wrap.min_num_params"), 100'000'000);
  EXPECT_EQ(text_value(translate(R"("auto_wrap_policy": "transformer")"), "wrap.policy"), "transformer");
  EXPECT_EQ(text_value(translate("\"auto_wrap_policy\": null"), "wrap.policy"), "none");
  expect_fault(R"("auto_wrap_policy": "sise")", "did you mean `size`?");
  expect_fault(R"("auto_wrap_policy": {"size": 1.5})", "must be a whole number, 0 or more");
  expect_fault(R"("auto_wrap_policy": {"size": {"min_params": 1}})", "did you mean `min_num_params`?");
  expect_fault(R"("auto_wrap_policy": [])", "must be a list of class names");
  expect_fault(R"("auto_wrap_policy": {})", "must be a list of class names, or one of");
  expect_fault(R"("auto_wrap_policy": 3)", "must be a list of class names, or one of");
}

TEST(TorchFsdp1, Offloading) {
  const Translation on = translate(R"("cpu_offload": {"offload_params": true})");
  EXPECT_TRUE(value<bool>(on, "offload.params"));
  EXPECT_TRUE(value<bool>(on, "offload.pin_memory"));
  EXPECT_TRUE(value<bool>(translate("\"cpu_offload\": true"), "offload.params"));
  for (const char* off : {"null", "false", "{}", "{\"offload_params\": false}"}) {
    EXPECT_FALSE(translate("\"cpu_offload\": " + std::string(off)).given.contains("offload.params")) << off;
  }
  expect_fault(R"("cpu_offload": {"offload": true})", "did you mean `offload_params`?");
  expect_fault(R"("cpu_offload": "cpu")", "must be {\"offload_params\": true} or false");
}

TEST(TorchFsdp1, Prefetch) {
  const Translation post =
      translate(R"("backward_prefetch": "BackwardPrefetch.BACKWARD_POST", "forward_prefetch": true)");
  EXPECT_EQ(value<int64_t>(post, "prefetch.backward"), 1);
  EXPECT_EQ(value<int64_t>(post, "prefetch.forward"), 1);
  EXPECT_TRUE(notes_name(post, "backward_prefetch"));
  EXPECT_EQ(value<int64_t>(translate("\"backward_prefetch\": null"), "prefetch.backward"), 0);
  expect_fault(R"("backward_prefetch": "NO_PREFETCH")", "or null");
  expect_fault(R"("forward_prefetch": 1)", "must be true or false");
}

TEST(TorchFsdp1, Precision) {
  const Translation plain = translate(R"("mixed_precision": {"param_dtype": "torch.bfloat16"})");
  EXPECT_EQ(text_value(plain, "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(text_value(plain, "mixed_precision.reduce"), "bfloat16");
  EXPECT_TRUE(value<bool>(plain, "mixed_precision.cast_forward_inputs"));
  EXPECT_FALSE(plain.given.contains("mixed_precision.output"));
  const Translation neither = translate(R"("mixed_precision": {"param_dtype": "float16", "reduce_dtype": "float32",
      "cast_root_forward_inputs": false, "buffer_dtype": "float32", "keep_low_precision_grads": true})");
  EXPECT_EQ(text_value(neither, "mixed_precision.reduce"), "float32");
  EXPECT_FALSE(value<bool>(neither, "mixed_precision.cast_forward_inputs"));
  EXPECT_TRUE(notes_name(neither, "buffer_dtype"));
  EXPECT_TRUE(notes_name(neither, "keep_low_precision_grads"));
  const Translation inner = translate(R"("mixed_precision": {"param_dtype": "float16",
      "cast_root_forward_inputs": false, "cast_forward_inputs": true, "keep_low_precision_grads": false})");
  EXPECT_TRUE(value<bool>(inner, "mixed_precision.cast_forward_inputs"));
  EXPECT_TRUE(inner.notes.empty());
  const Translation reduce = translate(R"("mixed_precision": {"reduce_dtype": "bfloat16"})");
  EXPECT_EQ(text_value(reduce, "mixed_precision.reduce"), "bfloat16");
  EXPECT_FALSE(reduce.given.contains("mixed_precision.param"));
  EXPECT_FALSE(reduce.given.contains("mixed_precision.cast_forward_inputs"));
  expect_fault(R"("mixed_precision": {"param_dtype": "int8"})", "must be \"float32\", \"float16\" or \"bfloat16\"");
  expect_fault(R"("mixed_precision": {"param_dype": "float16"})", "did you mean `param_dtype`?");
  expect_fault(R"("mixed_precision": "bf16")", "`mixed_precision` must be a map");
}

TEST(TorchFsdp1, IgnoredModules) {
  for (const char* keyword : {"ignored_modules", "ignored_states"}) {
    const Translation translation = translate("\"" + std::string(keyword) + "\": [\"head\", \"layers.0\"]");
    EXPECT_EQ(list_value(translation, "ignored_modules"), (std::vector<std::string>{"head", "layers\\.0"}));
  }
  expect_fault(R"("ignored_modules": ["a"], "ignored_states": ["b"])", "cannot stand beside `ignored_modules`");
  expect_fault(R"("ignored_modules": "head")", "must be a list of module paths");
}

TEST(TorchFsdp1, Loading) {
  EXPECT_EQ(text_value(translate("\"sync_module_states\": true"), "load.mode"), "broadcast");
  EXPECT_EQ(text_value(translate("\"sync_module_states\": false"), "load.mode"), "full");
}

TEST(TorchFsdp1, KeywordsWithoutEffect) {
  EXPECT_TRUE(translate(R"("param_init_fn": "f", "device_id": 0, "limit_all_gathers": false, "use_orig_params": true)")
                  .notes.empty());
  expect_fault("\"sharding_stategy\": 1", "has no keyword `sharding_stategy`; did you mean `sharding_strategy`?");
}

TEST(TorchFsdp1, OneWarningWhenConverted) {
  const Translation translation = translate_torch_fsdp1(R"({"backward_prefetch": "BACKWARD_PRE",
"forward_prefetch": false, "limit_all_gathers": true, "use_orig_params": true, "sync_module_states": true,
"param_init_fn": "f", "device_id": 0,
"mixed_precision": {"param_dtype": "bfloat16", "buffer_dtype": "bfloat16", "keep_low_precision_grads": true}})",
                                                        "kw.json", {.version = 2});
  EXPECT_EQ(translation.obsolete,
            (std::vector<std::string>{"backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params",
                                      "sync_module_states", "param_init_fn", "device_id", "buffer_dtype",
                                      "keep_low_precision_grads"}));
  EXPECT_EQ(translation.warning.find("kw.json: obsolete under version 2, to be removed: `backward_prefetch` (line 1)"),
            0U);
  EXPECT_EQ(value<int64_t>(translation, "version"), 2);
  EXPECT_FALSE(translation.given.contains("prefetch.backward"));
  EXPECT_EQ(text_value(translation, "load.mode"), "broadcast");
}

TEST(TorchFsdp1, KeysWithoutAFile) {
  const std::vector<HostKey> keys{{"sharding_strategy", "SHARD_GRAD_OP"},
                                  {"mixed_precision.param_dtype", "torch.float16"},
                                  {"auto_wrap_policy", "[\"Block\"]"}};
  const Translation translation = translate_torch_fsdp1_keys(keys, "FSDP()", {});
  EXPECT_EQ(text_value(translation, "strategy"), "shard_grad_op");
  EXPECT_EQ(text_value(translation, "mixed_precision.param"), "float16");
  EXPECT_EQ(list_value(translation, "wrap.layer_classes"), std::vector<std::string>{"Block"});
}

}  // namespace
}  // namespace fsdp2
