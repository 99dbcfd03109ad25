
#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "registry/config.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::notes_name;
using test::text_of;
using test::text_value;
using test::value;

Translation translate(const std::string& json) {
  return translate_deepspeed(json, "ds.json", {});
}

/// A file with these fields in zero_optimization, and these at the top.
std::string file_of(const std::string& zero, const std::string& top = "") {
  return "{\"zero_optimization\": {" + zero + "}" + (top.empty() ? "" : ", " + top) + "}";
}

Translation zero(const std::string& fields, const std::string& top = "") {
  return translate(file_of(fields, top));
}

std::string fault(const std::string& fields, const std::string& top = "") {
  return text_of([&] { zero(fields, top); });
}

void expect_fault(const std::string& fields, const std::string& sentence, const std::string& top = "") {
  test::expect_fault([&] { zero(fields, top); }, "ds.json:1:", sentence);
}

TEST(DeepSpeed, Defaults) {
  const Translation translation = translate("{}");
  EXPECT_EQ(value<int64_t>(translation, "version"), 2);
  EXPECT_EQ(text_value(translation, "strategy"), "no_shard");
  EXPECT_FALSE(value<bool>(translation, "reshard_after_forward"));
  EXPECT_EQ(text_value(translation, "checkpoint.kind"), "sharded");
  EXPECT_EQ(value<double>(translation, "gradient.clip_norm"), 1.0);
  EXPECT_EQ(translation.given.size(), 5U);
  EXPECT_TRUE(translation.notes.empty());
  EXPECT_NO_THROW(resolve({}, translation.given));
}

TEST(DeepSpeed, Stages) {
  const Translation three = zero("\"stage\": 3");
  EXPECT_EQ(text_value(three, "strategy"), "full_shard");
  EXPECT_TRUE(value<bool>(three, "reshard_after_forward"));
  const Translation two = zero("\"stage\": 2");
  EXPECT_EQ(text_value(two, "strategy"), "shard_grad_op");
  EXPECT_FALSE(value<bool>(two, "reshard_after_forward"));
  EXPECT_TRUE(two.notes.empty());
  const Translation one = zero("\"stage\": 1");
  EXPECT_EQ(text_value(one, "strategy"), "shard_grad_op");
  EXPECT_TRUE(notes_name(one, "zero_optimization.stage"));
  EXPECT_EQ(text_value(zero("\"stage\": 0"), "strategy"), "no_shard");
  // pydantic takes these for 3, 3 and 1.
  EXPECT_EQ(text_value(zero("\"stage\": \"3\""), "strategy"), "full_shard");
  EXPECT_EQ(text_value(zero("\"stage\": 3.0"), "strategy"), "full_shard");
  EXPECT_TRUE(notes_name(zero("\"stage\": true"), "stage"));
  const Translation unresolved = zero("\"stage\": \"auto\"");
  EXPECT_EQ(text_value(unresolved, "strategy"), "no_shard");
  EXPECT_TRUE(notes_name(unresolved, "zero_optimization.stage"));
  EXPECT_EQ(fault("\"stage\": 4"), "ds.json:1:33: `zero_optimization.stage: 4` must be 0, 1, 2 or 3");
  expect_fault("\"stage\": -1", "must be 0, 1, 2 or 3");
  expect_fault("\"stage\": 2.5", "must be a whole number");
  expect_fault("\"stage\": null", "must be a whole number");
}

TEST(DeepSpeed, OldFormOfTheBlock) {
  const Translation on = translate(R"({"zero_optimization": true})");
  EXPECT_EQ(text_value(on, "strategy"), "shard_grad_op");
  EXPECT_TRUE(notes_name(on, "zero_optimization"));
  EXPECT_EQ(text_value(translate(R"({"zero_optimization": false})"), "strategy"), "no_shard");
  EXPECT_EQ(text_of([] { translate(R"({"zero_optimization": null})"); }),
            "ds.json:1:23: `zero_optimization` must be a map");
}

TEST(DeepSpeed, Partitions) {
  const Translation secondary = zero("\"stage\": 3, \"zero_hpz_partition_size\": 8");
  EXPECT_EQ(text_value(secondary, "strategy"), "full_shard");
  EXPECT_EQ(value<int64_t>(secondary, "reshard_after_forward"), 8);
  EXPECT_FALSE(secondary.given.contains("mesh.shard"));
  EXPECT_TRUE(value<bool>(zero("\"stage\": 3, \"zero_hpz_partition_size\": 1"), "reshard_after_forward"));
  const Translation below = zero("\"stage\": 2, \"zero_hpz_partition_size\": 8, \"mics_shard_size\": 4");
  EXPECT_FALSE(value<bool>(below, "reshard_after_forward"));
  EXPECT_TRUE(notes_name(below, "zero_hpz_partition_size"));
  EXPECT_TRUE(notes_name(below, "mics_shard_size"));
  const Translation mics = zero("\"stage\": 3, \"mics_shard_size\": 4, \"zero_hpz_partition_size\": 2");
  EXPECT_EQ(text_value(mics, "strategy"), "hybrid_shard");
  EXPECT_EQ(value<int64_t>(mics, "mesh.shard"), 4);
  EXPECT_EQ(value<int64_t>(mics, "mesh.replicate"), -1);
  EXPECT_TRUE(value<bool>(mics, "reshard_after_forward"));
  EXPECT_TRUE(notes_name(mics, "zero_hpz_partition_size"));
  EXPECT_NO_THROW(resolve({}, mics.given));
  EXPECT_EQ(text_value(zero("\"stage\": 3, \"mics_shard_size\": -1"), "strategy"), "full_shard");
  expect_fault("\"zero_hpz_partition_size\": -1", "must be a whole number, 0 or more");
  expect_fault("\"stage\": 3, \"mics_shard_size\": 4, \"offload_param\": {\"device\": \"cpu\"}", "cannot be joined");
  expect_fault("\"stage\": 3, \"zero_hpz_partition_size\": 99999999999999999999", "is too large");
}

TEST(DeepSpeed, Offloading) {
  const Translation param = zero(R"("stage": 3, "offload_param": {"device": "cpu"})");
  EXPECT_TRUE(value<bool>(param, "offload.params"));
  EXPECT_TRUE(value<bool>(param, "offload.pin_memory"));
  EXPECT_TRUE(param.notes.empty());
  const Translation states = zero(R"("stage": 1, "offload_optimizer": {"device": "cpu", "pin_memory": false})");
  EXPECT_TRUE(value<bool>(states, "offload.params"));
  EXPECT_FALSE(value<bool>(states, "offload.pin_memory"));
  EXPECT_TRUE(notes_name(states, "zero_optimization.offload_optimizer.device"));
  const Translation both = zero(R"("stage": 3, "offload_param": {"device": "cpu"},
                                   "offload_optimizer": {"device": "cpu", "pin_memory": false, "ratio": 0.5})");
  EXPECT_TRUE(value<bool>(both, "offload.pin_memory"));
  EXPECT_FALSE(notes_name(both, "offload_optimizer.device"));
  EXPECT_TRUE(notes_name(both, "offload_optimizer.ratio"));
  const Translation below = zero(R"("stage": 2, "offload_param": {"device": "cpu"})");
  EXPECT_FALSE(below.given.contains("offload.params"));
  EXPECT_TRUE(notes_name(below, "offload_param.device"));
  const Translation off = zero(R"("stage": 0, "offload_optimizer": {"device": "cpu"})");
  EXPECT_FALSE(off.given.contains("offload.params"));
  EXPECT_TRUE(notes_name(off, "offload_optimizer.device"));
  EXPECT_FALSE(zero(R"("stage": 3, "offload_param": {"device": "none"})").given.contains("offload.params"));
  EXPECT_FALSE(zero(R"("stage": 3, "offload_param": null)").given.contains("offload.params"));
  EXPECT_TRUE(notes_name(zero(R"("stage": 3, "offload_param": {"device": "auto"})"), "offload_param.device"));
  expect_fault(R"("stage": 3, "offload_param": {"device": "nvme"})", "`zero_optimization.offload_param.device: nvme`");
  expect_fault(R"("offload_optimizer": {"device": "nvme"})", "is not possible here");
  expect_fault(R"("offload_param": {"device": "CPU"})", "did you mean `cpu`?");
  expect_fault(R"("offload_param": {"device": null})", "must be one of \"none\", \"cpu\", \"nvme\"");
  expect_fault(R"("offload_param": {"devce": "cpu"})", "did you mean `device`?");
  expect_fault(R"("offload_param": "cpu")", "`zero_optimization.offload_param` must be a map");
  expect_fault(R"("stage": 2, "offload_optimizer": {"ratio": 0.5})", "needs stage 3");
  expect_fault(R"("stage": 3, "offload_optimizer": {"ratio": 1.5})", "must be a number from 0 to 1");
}

TEST(DeepSpeed, DeprecatedFields) {
  const Translation states = zero(R"("stage": 2, "cpu_offload": true)");
  EXPECT_TRUE(value<bool>(states, "offload.params"));
  EXPECT_TRUE(notes_name(states, "zero_optimization.cpu_offload"));
  EXPECT_FALSE(zero(R"("stage": 2, "cpu_offload": false)").given.contains("offload.params"));
  const Translation param = zero(R"("stage": 3, "cpu_offload_param": true, "cpu_offload_use_pin_memory": false)");
  EXPECT_TRUE(value<bool>(param, "offload.pin_memory"));
  EXPECT_TRUE(notes_name(param, "cpu_offload_use_pin_memory"));
  const Translation gather = zero(R"("stage3_gather_fp16_weights_on_model_save": true)");
  EXPECT_EQ(text_value(gather, "checkpoint.kind"), "full");
  EXPECT_TRUE(notes_name(gather, "stage3_gather_fp16_weights_on_model_save"));
  expect_fault(R"("cpu_offload": false, "offload_optimizer": {})", "cannot stand beside `offload_optimizer`");
  expect_fault(R"("cpu_offload_param": null, "offload_param": null)", "cannot stand beside `offload_param`");
  expect_fault(R"("stage3_gather_fp16_weights_on_model_save": true, "gather_16bit_weights_on_model_save": true)",
               "cannot stand beside `zero_optimization.gather_16bit_weights_on_model_save`");
}

TEST(DeepSpeed, SavingAndPrefetch) {
  for (const char* name : {"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"}) {
    EXPECT_EQ(text_value(zero("\"" + std::string(name) + "\": true"), "checkpoint.kind"), "full");
  }
  for (const char* name : {"stage3_prefetch_bucket_size", "prefetch_bucket_size"}) {
    const Translation none = zero("\"stage\": 3, \"" + std::string(name) + "\": 0");
    EXPECT_EQ(value<int64_t>(none, "prefetch.forward"), 0);
    EXPECT_EQ(value<int64_t>(none, "prefetch.backward"), 0);
    const Translation some = zero("\"stage\": 3, \"" + std::string(name) + "\": 5e7");
    EXPECT_FALSE(some.given.contains("prefetch.forward"));
    EXPECT_TRUE(some.notes.empty());
  }
  EXPECT_TRUE(notes_name(zero("\"stage3_prefetch_bucket_size\": \"auto\""), "stage3_prefetch_bucket_size"));
  expect_fault("\"stage3_prefetch_bucket_size\": 0, \"prefetch_bucket_size\": 5", "are the same");
}

TEST(DeepSpeed, TuningHasNoEffect) {
  const Translation translation = zero(R"("stage": 2, "reduce_bucket_size": 5e8, "allgather_bucket_size": "auto",
      "allgather_partitions": true, "reduce_scatter": false, "overlap_comm": null, "contiguous_gradients": "yes",
      "sub_group_size": 1e9, "round_robin_gradients": 1, "use_multi_rank_bucket_allreduce": true,
      "load_from_fp32_weights": true, "stage3_max_live_parameters": 1e9, "max_reuse_distance": 1,
      "stage3_param_persistence_threshold": "auto", "stage3_model_persistence_threshold": 9223372036854775807,
      "stage3_module_granularity_threshold": -1, "stage3_use_all_reduce_for_fetch_params": false,
      "stage3_allgather_sequential": false, "memory_efficient_linear": true, "ignore_unused_parameters": true,
      "mics_hierarchical_params_gather": false, "override_module_apply": true, "legacy_stage1": false,
      "zero_quantized_weights": false, "leaf_module": null)",
                                       R"("activation_checkpointing": {"partition_activations": true},
      "train_batch_size": 8, "optimizer": {"type": "AdamW"}, "whatever": {"deep": [1, {"x": 2}]})");
  EXPECT_TRUE(translation.notes.empty());
  EXPECT_EQ(translation.given.size(), 5U);
}

TEST(DeepSpeed, WhatIsOnAndCannotBeExpressedIsNoted) {
  for (const char* field : {"\"zero_quantized_weights\": true", "\"zero_quantized_gradients\": true",
                            "\"zero_quantized_nontrainable_weights\": true", "\"zenflow\": {}",
                            "\"zeropp_loco_param\": {\"err_beta\": 0.8}", "\"elastic_checkpoint\": true",
                            "\"leaf_module\": {\"classes\": [\"x\"]}"}) {
    const std::string text = field;
    EXPECT_TRUE(notes_name(zero(field), text.substr(1, text.find('"', 1) - 1))) << field;
  }
  EXPECT_TRUE(notes_name(zero("", R"("torch_autocast": {"enabled": true})"), "torch_autocast"));
  EXPECT_TRUE(notes_name(zero("", R"("amp": {"enabled": true})"), "amp"));
  EXPECT_TRUE(notes_name(zero("", R"("data_types": {"grad_accum_dtype": "fp32"})"), "data_types"));
  EXPECT_TRUE(notes_name(zero("", R"("prescale_gradients": true)"), "prescale_gradients"));
  EXPECT_TRUE(notes_name(zero("", R"("gradient_predivide_factor": 2)"), "gradient_predivide_factor"));
  EXPECT_TRUE(zero("", R"("amp": {"enabled": false}, "prescale_gradients": false, "gradient_predivide_factor": 1,
                          "torch_autocast": {}, "data_types": {})")
                  .notes.empty());
}

TEST(DeepSpeed, Precision) {
  const Translation bf16 = zero("", R"("bf16": {"enabled": true})");
  EXPECT_EQ(text_value(bf16, "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(text_value(bf16, "mixed_precision.reduce"), "bfloat16");
  EXPECT_FALSE(bf16.given.contains("mixed_precision.cast_forward_inputs"));
  EXPECT_EQ(text_value(zero("", R"("bfloat16": {"enabled": true})"), "mixed_precision.param"), "bfloat16");
  EXPECT_EQ(text_value(zero("", R"("fp16": {"enabled": "true", "loss_scale": 0})"), "mixed_precision.param"),
            "float16");
  const Translation reduced = zero("", R"("fp16": {"enabled": true}, "communication_data_type": "BF16")");
  EXPECT_EQ(text_value(reduced, "mixed_precision.param"), "float16");
  EXPECT_EQ(text_value(reduced, "mixed_precision.reduce"), "bfloat16");
  EXPECT_EQ(text_value(zero("", R"("communication_data_type": "fp32")"), "mixed_precision.reduce"), "float32");
  const Translation off = zero("", R"("fp16": {"enabled": false}, "bf16": {}, "communication_data_type": null)");
  EXPECT_FALSE(off.given.contains("mixed_precision.param"));
  EXPECT_FALSE(off.given.contains("mixed_precision.reduce"));
  const Translation unresolved = zero("", R"("bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"})");
  EXPECT_FALSE(unresolved.given.contains("mixed_precision.param"));
  EXPECT_TRUE(notes_name(unresolved, "bf16.enabled"));
  EXPECT_TRUE(notes_name(unresolved, "fp16.enabled"));
  EXPECT_TRUE(notes_name(zero("", R"("bf16": {"enabled": false}, "bfloat16": {"enabled": true})"), "bfloat16"));
  expect_fault("", "contradicts `bf16.enabled: true`", R"("bf16": {"enabled": true}, "fp16": {"enabled": true})");
  expect_fault("", "did you mean `enabled`?", R"("bf16": {"enable": true})");
  expect_fault("", "`fp16` must be a map", R"("fp16": null)");
  expect_fault("", "must be true or false", R"("bf16": {"enabled": 2})");
  expect_fault("", R"(must be one of "fp32", "fp16", "bf16"; did you mean `bf16`?)",
               R"("communication_data_type": "bf61")");
  expect_fault("", "must be one of", R"("communication_data_type": "auto")");
}

TEST(DeepSpeed, Gradients) {
  EXPECT_EQ(value<double>(zero("", R"("gradient_clipping": 0.5)"), "gradient.clip_norm"), 0.5);
  EXPECT_EQ(value<double>(zero("", R"("gradient_clipping": 2)"), "gradient.clip_norm"), 2.0);
  EXPECT_FALSE(zero("", R"("gradient_clipping": 0.0)").given.contains("gradient.clip_norm"));
  EXPECT_FALSE(zero("", R"("gradient_clipping": -1)").given.contains("gradient.clip_norm"));
  const Translation unresolved = zero("", R"("gradient_clipping": "auto")");
  EXPECT_FALSE(unresolved.given.contains("gradient.clip_norm"));
  EXPECT_TRUE(notes_name(unresolved, "gradient_clipping"));
  EXPECT_EQ(value<double>(zero("\"stage\": 2", R"("gradient_allreduce_op": "SUM")"), "gradient.divide_factor"), 1.0);
  EXPECT_FALSE(zero("", R"("gradient_allreduce_op": "mean")").given.contains("gradient.divide_factor"));
  expect_fault("\"stage\": 3", "is not possible with stage 3", R"("gradient_allreduce_op": "sum")");
  expect_fault("", R"(must be one of "mean", "sum")", R"("gradient_allreduce_op": "max")");
  expect_fault("", "must be a number", R"("gradient_clipping": "1.0")");
  expect_fault("", "must be a number", R"("gradient_clipping": null)");
}

TEST(DeepSpeed, OtherParallelism) {
  expect_fault("", "`tensor_parallel.autotp_size: 2` is not possible", R"("tensor_parallel": {"autotp_size": 2})");
  expect_fault("", "`tensor_parallel.tp.tp_size: 2`", R"("tensor_parallel": {"tp": {"tp_size": 2}})");
  expect_fault("", "`sequence_parallel_size: 4` is not possible", R"("sequence_parallel_size": 4)");
  expect_fault("", "`expert_parallel.autoep_size: 2`", R"("expert_parallel": {"enabled": true, "autoep_size": 2})");
  EXPECT_NO_THROW(zero("", R"("tensor_parallel": {"autotp_size": 1}, "sequence_parallel_size": 1,
                              "expert_parallel": {"enabled": false, "autoep_size": 2})"));
}

TEST(DeepSpeed, UnknownAndDoubleKeys) {
  EXPECT_EQ(fault("\"stgae\": 2"),
            "ds.json:1:24: DeepSpeed knows no key `zero_optimization.stgae`; did you mean `stage`?");
  EXPECT_TRUE(notes_name(zero("\"stgae\": \"auto\""), "zero_optimization.stgae"));
  expect_fault("\"grad_hooks\": true", "DeepSpeed knows no key `zero_optimization.grad_hooks`");
  expect_fault("\"stage\": 2, \"stage\": 3", "`stage` stands twice in one map");
  expect_fault("", "`a` stands twice in one map", R"("scheduler": {"params": {"a": 1, "a": 1}})");
  expect_fault("\"legacy_stage1\": true", "is not possible here");
  expect_fault("\"overlap_comm\": \"maybe\"", "must be true or false");
  EXPECT_EQ(text_of([] { translate("[1]"); }), "ds.json:1:1: the file must be a map");
}

TEST(DeepSpeed, Comments) {
  const Translation translation =
      translate("{\n  // sharded\n  \"zero_optimization\": {\n    \"stage\": 3, # all\n  },\n}");
  EXPECT_EQ(text_value(translation, "strategy"), "full_shard");
  EXPECT_EQ(translation.given.at("strategy").source.line, 4);
  EXPECT_EQ(translation.given.at("strategy").source.column, 14);
}

TEST(DeepSpeed, IsNoVersion1) {
  EXPECT_EQ(text_of([] { translate_deepspeed("{}", "ds.json", {.version = 1}); }),
            "ds.json: DeepSpeed's settings cannot be converted to version 1");
  EXPECT_NO_THROW(translate_deepspeed("{}", "ds.json", {.version = 2}));
}

TEST(DeepSpeed, LoadsFromToml) {
  const std::string folder = testing::TempDir();
  test::write_file(folder + "fsdp2_ds.json", R"({"zero_optimization": {"stage": 2}, "gradient_clipping": 0})");
  const Config config =
      load_config_text("[fsdp]\ndialect = 'deepspeed'\nconfig = 'fsdp2_ds.json'\n", folder + "fsdp2_t.toml");
  EXPECT_EQ(config.options.strategy, "shard_grad_op");
}

}  // namespace
}  // namespace fsdp2
