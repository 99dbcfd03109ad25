#include "adapters/adapters.hpp"
#include "helpers.hpp"
#include "registry/config.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::notes_name;
using test::text_of;
using test::value_of;

// As in TorchFort's examples; what a test adds begins in line 5.
constexpr const char* kModel = "model:\n  type: torchscript\n  parameters:\n    filename: net.pt\n";

Translation fort(const std::string& more) {
  return translate_torchfort(kModel + more, "f.yaml", {});
}

std::string fort_error(const std::string& more) {
  return text_of([&] { fort(more); });
}

std::string with_step(const std::string& keys) {
  return "optimizer:\n  type: adam\n  parameters:\n    learning_rate: 1e-3\n  general:\n    " + keys + "\n";
}

TEST(TorchFort, WithoutABlockOfOursOnlyTheClippingCounts) {
  EXPECT_TRUE(fort("").given.empty());
  const Translation translation = fort(with_step("max_grad_norm: 0.5"));
  EXPECT_EQ(value_of(translation, "gradient.clip_norm"), "0.5");
  EXPECT_EQ(translation.given.size(), 1U);
  EXPECT_TRUE(fort(with_step("max_grad_norm: 0.0")).given.empty());
  EXPECT_TRUE(fort(with_step("grad_accumulation_steps: 4")).given.empty());
  EXPECT_EQ(value_of(fort(with_step("MAX_GRAD_NORM: 1e1")), "gradient.clip_norm"), "10.0");
  EXPECT_EQ(value_of(fort(with_step("max_grad_norm: [2.0]")), "gradient.clip_norm"), "2.0");
  EXPECT_EQ(fort_error(with_step("max_grad_norm: much")), "f.yaml:10:20: `max_grad_norm: much` must be a number");
}

TEST(TorchFort, KeysThatItRefuses) {
  EXPECT_EQ(fort_error("general:\n  report_frequenzy: 10\n"),
            "f.yaml:6:3: TorchFort knows no key `report_frequenzy` in `general`; did you mean `report_frequency`?");
  EXPECT_EQ(
      fort_error(with_step("max_grad_nrom: 1")),
      "f.yaml:10:5: TorchFort knows no key `max_grad_nrom` in `optimizer.general`; did you mean `max_grad_norm`?");
  EXPECT_EQ(
      fort_error("optimizer:\n  type: sgd\n  parameters:\n    beta1: 0.9\n").find("f.yaml:8:5: TorchFort knows no key"),
      0U);
  EXPECT_NO_THROW(fort("optimizer:\n  type: SGD\n  parameters:\n    momentum: 0.9\n    nesterov: 1\n"));
  EXPECT_EQ(fort_error("optimizer:\n  type: adamw\n"),
            "f.yaml:6:9: `type: adamw` must be one of \"adam\", \"sgd\"; did you mean `adam`?");
  EXPECT_EQ(fort_error("optimizer:\n  parameters: {}\n"), "f.yaml:6:3: `optimizer` has no `type`");
  EXPECT_NO_THROW(fort("our_own_block: {anything: 1}\nlr_scheduler: {type: step}\n"));
  EXPECT_NO_THROW(fort("general:\n  Report_Frequency: 10\n  verbose: 1\n"));
  EXPECT_EQ(text_of([] { translate_torchfort("general: {}\n", "f.yaml", {}); }),
            "f.yaml: the block `model` (or `algorithm`) is missing: this is no file of TorchFort");
  EXPECT_EQ(text_of([] { translate_torchfort("model:\n  type: torchscript\n", "f.yaml", {}); }),
            "f.yaml:2:9: `type: torchscript` needs `parameters.filename`, the TorchScript file");
  EXPECT_NO_THROW(translate_torchfort("model:\n  type: mlp\n", "f.yaml", {}));
}

TEST(TorchFort, CudaGraphsAreNoted) {
  EXPECT_TRUE(notes_name(fort("general:\n  enable_cuda_graphs: true\n"), "enable_cuda_graphs"));
  EXPECT_TRUE(notes_name(fort("general:\n  enable_cuda_graphs: 1\n"), "enable_cuda_graphs"));
  EXPECT_TRUE(fort("general:\n  enable_cuda_graphs: false\n").notes.empty());
}

TEST(TorchFort, OurOwnBlock) {
  const Translation translation = fort(
      "fsdp:\n  strategy: shard_grad_op\n  version: 2\n  wrap:\n    policy: transformer\n    layer_classes: [Block]\n"
      "  wrap.min_num_params: 3\n  mesh: {replicate: 2, shard: -1}\n  debug.timeout_s: 1.5\n"
      "  activation_checkpointing:\n    every: 2\n  gradient: {clip_norm: 2}\n  ignored_modules: []\n"
      "  offload.params: false\n  reshard_after_forward: false\n  layout: ~\n" +
      with_step("max_grad_norm: 1.0"));
  EXPECT_EQ(value_of(translation, "strategy"), "shard_grad_op");
  EXPECT_EQ(value_of(translation, "version"), "2");
  EXPECT_EQ(value_of(translation, "wrap.policy"), "transformer");
  EXPECT_EQ(value_of(translation, "wrap.layer_classes"), "Block");
  EXPECT_EQ(value_of(translation, "wrap.min_num_params"), "3");
  EXPECT_EQ(value_of(translation, "mesh.shard"), "-1");
  EXPECT_EQ(value_of(translation, "debug.timeout_s"), "1.5");
  EXPECT_EQ(value_of(translation, "activation_checkpointing.every"), "2");
  EXPECT_EQ(value_of(translation, "gradient.clip_norm"), "2");
  EXPECT_EQ(value_of(translation, "offload.params"), "false");
  EXPECT_EQ(value_of(translation, "layout"), "-");
  EXPECT_TRUE(notes_name(translation, "max_grad_norm"));
  EXPECT_EQ(translation.given.at("strategy").source.line, 6);
}

TEST(TorchFort, ErrorsOfOurOwnBlock) {
  EXPECT_EQ(fort_error("fsdp:\n  stratgy: full_shard\n"),
            "f.yaml:6:3: `fsdp` has no key `stratgy`; did you mean `strategy`?");
  EXPECT_EQ(fort_error("fsdp:\n  wrap: {policy: transfomer}\n"),
            "f.yaml:6:18: `wrap.policy` must be \"transformer\", \"size\", \"modules\", \"every\" or \"none\", not "
            "\"transfomer\"; did you mean `transformer`?");
  EXPECT_EQ(fort_error("fsdp:\n  version: two\n"), "f.yaml:6:12: `version` must be 1 or 2, not a string");
  EXPECT_EQ(fort_error("fsdp:\n  config: other.yaml\n"),
            "f.yaml:6:3: `config` belongs into the table [fsdp] of a TOML file");
  EXPECT_EQ(fort_error("fsdp: full_shard\n"), "f.yaml:5:7: `fsdp` must be a map");
  EXPECT_EQ(fort_error("fsdp:\n  wrap: {policy: {a: {b: {c: 1}}}}\n").find("f.yaml:6:"), 0U);
  const Translation transformer = fort("fsdp:\n  wrap.policy: size\n  wrap.layer_classes: [A]\n");
  EXPECT_EQ(text_of([&] { resolve({}, transformer.given); }).find("f.yaml:7:23: "), 0U);
}

}  // namespace
}  // namespace fsdp2
