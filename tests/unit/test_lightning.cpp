#include "adapters/adapters.hpp"
#include "helpers.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::mesh_in;
using test::notes_name;
using test::strategy_of;
using test::text_of;
using test::value_of;

Translation lightning(const std::string& yaml, std::optional<int64_t> version = {}) {
  TranslationContext context;
  context.version = version;
  return translate_lightning(yaml, "l.yaml", context);
}

/// Lines of init_args, which begin in line 5, and lines of `trainer`, which follow.
std::string fsdp_file(const std::string& arguments, const std::string& trainer = "",
                      const std::string& name = "FSDPStrategy") {
  const std::string yaml =
      "trainer:\n  strategy:\n    class_path: lightning.pytorch.strategies." + name + "\n    init_args:\n";
  return yaml + test::indented(arguments, 6) + test::indented(trainer, 2);
}

Translation fsdp(const std::string& arguments, const std::string& trainer = "") {
  return lightning(fsdp_file(arguments, trainer));
}

std::string fsdp_error(const std::string& arguments, const std::string& trainer = "") {
  return text_of([&] { fsdp(arguments, trainer); });
}

Translation parallel(const std::string& arguments, const std::string& trainer = "") {
  return lightning(fsdp_file("tensor_parallel_size: 1\n" + arguments, trainer, "ModelParallelStrategy"));
}

std::string parallel_error(const std::string& arguments, const std::string& trainer = "") {
  return text_of([&] { lightning(fsdp_file(arguments, trainer, "ModelParallelStrategy")); });
}

TEST(Lightning, DefaultsOfFsdpStrategy) {
  for (const std::string& yaml : {std::string("trainer:\n  strategy: fsdp\n"), fsdp_file(""),
                                  std::string("fit:\n  trainer:\n    strategy: fsdp\n"),
                                  std::string("trainer:\n  strategy:\n    class_path: FSDPStrategy\n")}) {
    const Translation translation = lightning(yaml);
    EXPECT_EQ(value_of(translation, "version"), "1");
    EXPECT_EQ(strategy_of(translation), "full_shard true");
    EXPECT_EQ(value_of(translation, "wrap.policy"), "none");
    EXPECT_EQ(value_of(translation, "checkpoint.kind"), "full");
    EXPECT_EQ(value_of(translation, "prefetch.backward"), "1");
    EXPECT_EQ(value_of(translation, "prefetch.forward"), "0");
    EXPECT_EQ(value_of(translation, "load.mode"), "full");
    EXPECT_EQ(translation.given.size(), 8U);
    EXPECT_TRUE(translation.notes.empty());
  }
  const Translation offload = lightning("trainer:\n  strategy: fsdp_cpu_offload\n");
  EXPECT_EQ(value_of(offload, "offload.params"), "true");
  EXPECT_EQ(strategy_of(offload), "full_shard true");
}

TEST(Lightning, WhichStrategy) {
  EXPECT_EQ(
      text_of([] { lightning("trainer:\n  strategy: ddp\n"); }),
      "l.yaml:2:13: `strategy: ddp` is not translated; accepted are \"fsdp\", \"fsdp_cpu_offload\" or a class_path "
      "of \"FSDPStrategy\", \"ModelParallelStrategy\"; did you mean `fsdp`?");
  EXPECT_EQ(
      text_of([] { lightning("trainer:\n  strategy: fdsp\n"); }),
      "l.yaml:2:13: `strategy: fdsp` is not translated; accepted are \"fsdp\", \"fsdp_cpu_offload\" or a class_path "
      "of \"FSDPStrategy\", \"ModelParallelStrategy\"; did you mean `fsdp`?");
  EXPECT_EQ(
      text_of([] { lightning("trainer:\n  strategy:\n    class_path: lightning.pytorch.strategies.DDPStrategy\n"); }),
      "l.yaml:3:17: `class_path: lightning.pytorch.strategies.DDPStrategy` is not translated; accepted are "
      "\"FSDPStrategy\", \"ModelParallelStrategy\"; did you mean `FSDPStrategy`?");
  EXPECT_EQ(text_of([] { lightning("trainer:\n  max_epochs: 3\n"); }),
            "l.yaml: `strategy` is missing below `trainer`; translated are \"fsdp\", \"fsdp_cpu_offload\", "
            "\"FSDPStrategy\", \"ModelParallelStrategy\"");
  EXPECT_EQ(text_of([] { lightning("trainer:\n  strategy:\n    init_args: {}\n"); }),
            "l.yaml:3:5: `strategy` has no `class_path`");
  EXPECT_NO_THROW(lightning("trainer:\n  strategy:\n    class_path: pytorch_lightning.strategies.FSDPStrategy\n"));
  EXPECT_EQ(text_of([] { lightning("trainer: 3\n"); }), "l.yaml:1:10: `trainer` must be a map");
}

TEST(Lightning, Strategies) {
  struct Case {
    const char* written;
    const char* strategy;
  };
  for (const Case& c : {Case{"FULL_SHARD", "full_shard true"}, Case{"shard_grad_op", "shard_grad_op false"},
                        Case{"NO_SHARD", "no_shard false"}, Case{"HYBRID_SHARD", "hybrid_shard true"},
                        Case{"_HYBRID_SHARD_ZERO2", "hybrid_shard_zero2 false"}}) {
    const Translation translation =
        fsdp(std::string("sharding_strategy: ") + c.written + "\nauto_wrap_policy: [a.b.Block]", "num_nodes: 4");
    EXPECT_EQ(strategy_of(translation), c.strategy);
    EXPECT_EQ(mesh_in(translation), std::string(c.strategy).starts_with("hybrid") ? "4 x -1" : "- x -");
  }
  EXPECT_EQ(fsdp_error("sharding_strategy: HYBRID_SHARD_ZERO2"),
            "l.yaml:5:26: `sharding_strategy: HYBRID_SHARD_ZERO2` must be one of \"FULL_SHARD\", \"SHARD_GRAD_OP\", "
            "\"NO_SHARD\", \"HYBRID_SHARD\", \"_HYBRID_SHARD_ZERO2\"; did you mean `_HYBRID_SHARD_ZERO2`?");
}

TEST(Lightning, Mesh) {
  const Translation translation = fsdp("sharding_strategy: hybrid_shard\ndevice_mesh: [2, 4]");
  EXPECT_EQ(mesh_in(translation), "2 x 4");
  const Translation without = fsdp("device_mesh: [2, 4]");
  EXPECT_EQ(mesh_in(without), "- x -");
  EXPECT_TRUE(notes_name(without, "device_mesh"));
  EXPECT_EQ(fsdp_error("sharding_strategy: hybrid_shard"),
            "l.yaml:5:26: `sharding_strategy: hybrid_shard` needs `auto_wrap_policy`, `device_mesh` or `process_group` "
            "beside it");
  EXPECT_EQ(fsdp_error("device_mesh: [2, 4]\nprocess_group: world"),
            "l.yaml:6:22: `process_group: world` excludes `device_mesh`: give one of the two");
  EXPECT_EQ(fsdp_error("sharding_strategy: hybrid_shard\ndevice_mesh: [8]"),
            "l.yaml:6:20: `device_mesh: a list` must be two numbers of ranks, [replicate, shard]");
  EXPECT_EQ(fsdp_error("sharding_strategy: hybrid_shard\ndevice_mesh: [2, x]").find("l.yaml:6:20: "), 0U);
  const Translation group = fsdp("sharding_strategy: hybrid_shard\nprocess_group: nodes");
  EXPECT_TRUE(notes_name(group, "process_group"));
  EXPECT_EQ(mesh_in(group), "- x -");
  EXPECT_EQ(fsdp_error("sharding_strategy: hybrid_shard\nauto_wrap_policy: [B]", "num_nodes: 0"),
            "l.yaml:7:14: `num_nodes: 0` must be a number of nodes, 1 or more");
}

TEST(Lightning, WrapPolicy) {
  const Translation classes = fsdp("auto_wrap_policy:\n- torch.nn.TransformerEncoderLayer\n- mine.Block");
  EXPECT_EQ(value_of(classes, "wrap.policy"), "transformer");
  EXPECT_EQ(value_of(classes, "wrap.layer_classes"), "TransformerEncoderLayer, Block");
  const Translation object = fsdp(
      "auto_wrap_policy:\n  class_path: torch.distributed.fsdp.wrap.ModuleWrapPolicy\n  init_args:\n"
      "    module_classes: [mine.Block]");
  EXPECT_EQ(value_of(object, "wrap.layer_classes"), "Block");
  const Translation callable = fsdp("auto_wrap_policy: mine.policy");
  EXPECT_EQ(value_of(callable, "wrap.policy"), "-");
  EXPECT_TRUE(notes_name(callable, "auto_wrap_policy"));
  EXPECT_EQ(value_of(fsdp("auto_wrap_policy: null"), "wrap.policy"), "none");
  EXPECT_EQ(value_of(fsdp("auto_wrap_policy: []"), "wrap.policy"), "none");
  EXPECT_EQ(fsdp_error("auto_wrap_policy: [{a: b}]"),
            "l.yaml:5:25: `auto_wrap_policy: a list` must be a list of classes");
}

TEST(Lightning, Checkpointing) {
  const Translation same = fsdp("auto_wrap_policy: [a.Block]\nactivation_checkpointing_policy: [b.Block]");
  EXPECT_EQ(value_of(same, "activation_checkpointing"), "true");
  EXPECT_TRUE(same.notes.empty());
  EXPECT_TRUE(notes_name(fsdp("auto_wrap_policy: [a.Block]\nactivation_checkpointing_policy: [a.Other]"),
                         "activation_checkpointing_policy"));
  const Translation callable = fsdp("activation_checkpointing_policy: a.function");
  EXPECT_EQ(value_of(callable, "activation_checkpointing"), "true");
  EXPECT_TRUE(notes_name(callable, "activation_checkpointing_policy"));
  const Translation old = fsdp("activation_checkpointing: a.Block");
  EXPECT_EQ(value_of(old, "activation_checkpointing"), "true");
  EXPECT_TRUE(notes_name(old, "`activation_checkpointing: a.Block`"));
  EXPECT_EQ(
      fsdp_error("activation_checkpointing: [a.Block]\nactivation_checkpointing_policy: [a.Block]"),
      "l.yaml:5:33: `activation_checkpointing: a list` excludes `activation_checkpointing_policy`, which took its "
      "place");
}

TEST(Lightning, OffloadAndStateDict) {
  EXPECT_EQ(value_of(fsdp("cpu_offload: true"), "offload.params"), "true");
  EXPECT_EQ(value_of(fsdp("cpu_offload: false"), "offload.params"), "-");
  EXPECT_EQ(fsdp_error("cpu_offload: 3"), "l.yaml:5:20: `cpu_offload: 3` must be true or false");
  EXPECT_EQ(fsdp_error("cpu_offload: {offload_params: true}"),
            "l.yaml:5:20: `cpu_offload: a map` must be true or false in a file");
  EXPECT_EQ(value_of(fsdp("state_dict_type: sharded"), "checkpoint.kind"), "sharded");
  EXPECT_EQ(fsdp_error("state_dict_type: shared"),
            "l.yaml:5:24: `state_dict_type: shared` must be one of \"full\", \"sharded\"; did you mean `sharded`?");
}

TEST(Lightning, KeywordsOfPyTorch) {
  const Translation post = fsdp(
      "backward_prefetch: BACKWARD_POST\nforward_prefetch: true\nsync_module_states: true\n"
      "ignored_modules: [net.head, 'a*b']\nlimit_all_gathers: false\nuse_orig_params: true");
  EXPECT_EQ(value_of(post, "prefetch.backward"), "1");
  EXPECT_TRUE(notes_name(post, "backward_prefetch"));
  EXPECT_EQ(value_of(post, "prefetch.forward"), "1");
  EXPECT_EQ(value_of(post, "load.mode"), "broadcast");
  EXPECT_EQ(value_of(post, "ignored_modules"), "net\\.head, a\\*b");
  EXPECT_EQ(post.notes.size(), 1U);
  EXPECT_EQ(value_of(fsdp("backward_prefetch: null"), "prefetch.backward"), "0");
  EXPECT_EQ(value_of(fsdp("backward_prefetch: BackwardPrefetch.BACKWARD_PRE"), "prefetch.backward"), "1");
  EXPECT_EQ(
      fsdp_error("backward_prefetch: BACKWARD_PER"),
      "l.yaml:5:26: `backward_prefetch: BACKWARD_PER` must be one of \"BACKWARD_PRE\", \"BACKWARD_POST\"; did you "
      "mean `BACKWARD_PRE`?");
  EXPECT_EQ(fsdp_error("ignored_modules: [a]\nignored_states: [b]"),
            "l.yaml:6:23: `ignored_states: a list` excludes `ignored_modules`: PyTorch takes one of the two");
  EXPECT_EQ(fsdp_error("ignored_modules: true").find("l.yaml:5:24: "), 0U);
  EXPECT_EQ(fsdp_error("backward_prefech: BACKWARD_PRE"),
            "l.yaml:5:7: FSDPStrategy knows no argument `backward_prefech`; did you mean `backward_prefetch`?");
  const Translation more = lightning(
      "trainer:\n  strategy:\n    class_path: FSDPStrategy\n    dict_kwargs:\n      forward_prefetch: true\n");
  EXPECT_EQ(value_of(more, "prefetch.forward"), "1");
}

TEST(Lightning, Precision) {
  struct Case {
    const char* written;
    const char* dtype;
    bool is_noted;
  };
  for (const Case& c :
       {Case{"bf16-mixed", "bfloat16", false}, Case{"bf16-true", "bfloat16", true}, Case{"16-mixed", "float16", false},
        Case{"16-true", "float16", true}, Case{"32-true", "-", false}, Case{"32", "-", false},
        Case{"16", "float16", false}, Case{"bf16", "bfloat16", false}, Case{"'16'", "float16", false}}) {
    const Translation translation = fsdp("", std::string("precision: ") + c.written);
    EXPECT_EQ(value_of(translation, "mixed_precision.param"), c.dtype) << c.written;
    EXPECT_EQ(value_of(translation, "mixed_precision.reduce"), c.dtype);
    EXPECT_EQ(value_of(translation, "mixed_precision.output"), "-");
    EXPECT_EQ(value_of(translation, "mixed_precision.cast_forward_inputs"), c.dtype[0] == '-' ? "-" : "true");
    EXPECT_EQ(notes_name(translation, "precision"), c.is_noted);
  }
  for (const char* wrong : {"64", "64-true", "transformer-engine", "fp16"}) {
    EXPECT_EQ(fsdp_error("", std::string("precision: ") + wrong).find("l.yaml:5:14: `precision: "), 0U) << wrong;
  }
  EXPECT_EQ(
      fsdp_error("", "precision: bf16-mxied"),
      "l.yaml:5:14: `precision: bf16-mxied` must be one of \"32-true\", \"16-true\", \"bf16-true\", \"16-mixed\", "
      "\"bf16-mixed\"; did you mean `bf16-mixed`?");
}

TEST(Lightning, MixedPrecisionObjectWins) {
  const Translation translation = fsdp(
      "mixed_precision:\n  class_path: torch.distributed.fsdp.MixedPrecision\n  init_args:\n"
      "    param_dtype: torch.float16\n    buffer_dtype: torch.float32\n    cast_root_forward_inputs: false",
      "precision: bf16-mixed");
  EXPECT_EQ(value_of(translation, "mixed_precision.param"), "float16");
  EXPECT_EQ(value_of(translation, "mixed_precision.reduce"), "float16");
  EXPECT_EQ(value_of(translation, "mixed_precision.cast_forward_inputs"), "false");
  EXPECT_TRUE(notes_name(translation, "precision: bf16-mixed"));
  EXPECT_TRUE(notes_name(translation, "buffer_dtype"));
  const Translation reduce = fsdp("mixed_precision: {reduce_dtype: float32}");
  EXPECT_EQ(value_of(reduce, "mixed_precision.param"), "-");
  EXPECT_EQ(value_of(reduce, "mixed_precision.reduce"), "float32");
  EXPECT_EQ(value_of(reduce, "mixed_precision.cast_forward_inputs"), "-");
  EXPECT_EQ(fsdp_error("mixed_precision: {param_dtyp: float32}"),
            "l.yaml:5:25: PyTorch's MixedPrecision knows no `param_dtyp`; did you mean `param_dtype`?");
  EXPECT_EQ(fsdp_error("mixed_precision: {param_dtype: int8}"),
            "l.yaml:5:38: `param_dtype: int8` must be one of \"float32\", \"float16\", \"bfloat16\"");
  EXPECT_EQ(fsdp_error("mixed_precision: bf16").find("l.yaml:5:24: "), 0U);
}

TEST(Lightning, ClippingByNormIsRefused) {
  for (const char* trainer : {"gradient_clip_val: 1.0", "gradient_clip_val: 1e-1\ngradient_clip_algorithm: norm"}) {
    const std::string error = fsdp_error("", trainer);
    EXPECT_EQ(error.find("l.yaml:5:22: `gradient_clip_val: 1"), 0U) << error;
    EXPECT_NE(error.find("gradient_clip_algorithm"), std::string::npos);
  }
  EXPECT_TRUE(notes_name(fsdp("", "gradient_clip_val: 1.0\ngradient_clip_algorithm: value"), "gradient_clip_val"));
  EXPECT_TRUE(fsdp("", "gradient_clip_val: 0").notes.empty());
  EXPECT_TRUE(fsdp("", "gradient_clip_val: null\ngradient_clip_algorithm: norm").notes.empty());
  EXPECT_EQ(fsdp_error("", "gradient_clip_val: much"), "l.yaml:5:22: `gradient_clip_val: much` must be a number");
  EXPECT_EQ(fsdp_error("", "gradient_clip_val: 1\ngradient_clip_algorithm: nrom"),
            "l.yaml:6:28: `gradient_clip_algorithm: nrom` must be one of \"norm\", \"value\"; did you mean `norm`?");
}

TEST(Lightning, ConvertsToVersion2) {
  const Translation translation =
      lightning(fsdp_file("sharding_strategy: SHARD_GRAD_OP\nbackward_prefetch: BACKWARD_PRE\nuse_orig_params: true\n"
                          "sync_module_states: true\nmixed_precision: {param_dtype: bf16, buffer_dtype: "
                          "bf16}\nlimit_all_gathers: null"),
                2);
  EXPECT_EQ(value_of(translation, "version"), "2");
  EXPECT_EQ(strategy_of(translation), "shard_grad_op false");
  EXPECT_EQ(value_of(translation, "prefetch.backward"), "-");
  EXPECT_EQ(value_of(translation, "load.mode"), "broadcast");
  EXPECT_EQ(
      translation.warning,
      "l.yaml: obsolete under version 2, to be removed: `backward_prefetch` (line 6), `use_orig_params` (line 7), "
      "`sync_module_states` (line 8), `buffer_dtype` (line 9)");
  EXPECT_EQ(
      text_of([] { lightning(fsdp_file("", "", "ModelParallelStrategy"), 1); }),
      "l.yaml:3:17: `class_path: lightning.pytorch.strategies.ModelParallelStrategy` is version 2, which cannot be "
      "converted to version 1");
}

TEST(Lightning, ModelParallel) {
  const Translation translation = parallel("data_parallel_size: 4\nsave_distributed_checkpoint: false",
                                           "precision: bf16-true\ngradient_clip_val: 0.5");
  EXPECT_EQ(value_of(translation, "version"), "2");
  EXPECT_EQ(strategy_of(translation), "full_shard auto");
  EXPECT_EQ(mesh_in(translation), "1 x 4");
  EXPECT_EQ(value_of(translation, "checkpoint.kind"), "full");
  EXPECT_EQ(value_of(translation, "gradient.clip_norm"), "0.5");
  EXPECT_EQ(value_of(translation, "mixed_precision.param"), "-");
  EXPECT_EQ(value_of(translation, "wrap.policy"), "-");
  EXPECT_TRUE(notes_name(translation, "ModelParallelStrategy"));
  EXPECT_EQ(mesh_in(parallel("", "num_nodes: 3")), "1 x 3");
  EXPECT_EQ(mesh_in(parallel("data_parallel_size: auto")), "1 x 1");
  EXPECT_EQ(value_of(parallel(""), "checkpoint.kind"), "sharded");
  EXPECT_NO_THROW(lightning(fsdp_file("", "devices: 1", "ModelParallelStrategy")));
  EXPECT_NO_THROW(lightning(fsdp_file("tensor_parallel_size: auto", "devices: [3]", "ModelParallelStrategy")));
  EXPECT_TRUE(notes_name(parallel("", "gradient_clip_val: 1\ngradient_clip_algorithm: value"), "gradient_clip_val"));
}

TEST(Lightning, ErrorsOfModelParallel) {
  EXPECT_EQ(
      parallel_error("tensor_parallel_size: 2"),
      "l.yaml:5:29: `tensor_parallel_size: 2` is not possible: only data-parallel ranks are sharded, so it must be 1");
  EXPECT_EQ(parallel_error("tensor_parallel_size: auto", "devices: 8"),
            "l.yaml:5:29: `tensor_parallel_size: auto` means the devices of a node, 8: only data-parallel ranks are "
            "sharded, so write `tensor_parallel_size: 1`");
  EXPECT_EQ(
      parallel_error(""),
      "l.yaml:3:17: `tensor_parallel_size: auto`, the default, means the devices of a node, an unknown number: only "
      "data-parallel ranks are sharded, so write `tensor_parallel_size: 1`");
  EXPECT_EQ(parallel_error("", "devices: -1").find("l.yaml:3:17: "), 0U);
  EXPECT_EQ(parallel_error("tensor_parallel_size: 1\ndata_parallel_size: 0"),
            "l.yaml:6:27: `data_parallel_size: 0` must be \"auto\" or a number of ranks, 1 or more");
  EXPECT_EQ(
      parallel_error("tensor_parallel_size: 1", "precision: 16-mixed"),
      "l.yaml:6:14: `precision: 16-mixed` must be one of \"32-true\", \"16-true\", \"bf16-true\", \"bf16-mixed\"; "
      "did you mean `bf16-mixed`?");
  EXPECT_EQ(parallel_error("tensor_paralel_size: 1"),
            "l.yaml:5:7: ModelParallelStrategy knows no argument `tensor_paralel_size`; did you mean "
            "`tensor_parallel_size`?");
}

}  // namespace
}  // namespace fsdp2
