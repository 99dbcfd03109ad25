#include "registry/toml_writer.hpp"

#include <gtest/gtest.h>

#include "registry/toml_reader.hpp"

namespace fsdp2 {
namespace {

void expect_round_trip(const Fsdp2Options& options) {
  const std::string text = to_toml(options);
  EXPECT_EQ(read_options(text, "printed"), options) << text;
}

TEST(TomlWriter, Defaults) {
  EXPECT_EQ(
      to_toml({}),
      "[fsdp]\nversion = 2\nstrategy = \"full_shard\"\nreshard_after_forward = \"auto\"\nwrap.policy = \"none\"\n");
  expect_round_trip({});
}

TEST(TomlWriter, EveryKey) {
  Fsdp2Options options;
  options.version = 1;
  options.strategy = "hybrid_shard_zero2";
  options.reshard_after_forward = false;
  options.layout = Layout::kFlat;
  options.wrap = {WrapPolicy::kTransformer, {"A", "B"}, std::nullopt, {}};
  options.ignored_modules = {R"(head\..*|"x")"};
  options.mesh = {2, -1};
  options.mixed_precision = {DType::kFloat16, DType::kFloat32, DType::kBFloat16, false};
  options.offload = {true, false};
  options.prefetch = {3, 2};
  options.activation_checkpointing = {true, std::nullopt, {"A"}};
  options.gradient = {0.1, 3};
  options.checkpoint_kind = CheckpointKind::kFull;
  options.load_mode = LoadMode::kFull;
  options.dialect = "accelerate";
  options.config = "a b.yaml";
  options.plugins = {"libmine.so"};
  options.debug = {-1, true, 1e-9, 0};
  EXPECT_EQ(to_toml(options), R"([fsdp]
version = 1
strategy = "hybrid_shard_zero2"
reshard_after_forward = false
layout = "flat"
wrap.policy = "transformer"
wrap.layer_classes = ["A", "B"]
ignored_modules = ["head\\..*|\"x\""]
mesh.replicate = 2
mesh.shard = -1
mixed_precision.param = "float16"
mixed_precision.reduce = "float32"
mixed_precision.output = "bfloat16"
mixed_precision.cast_forward_inputs = false
offload.params = true
offload.pin_memory = false
prefetch.forward = 3
prefetch.backward = 2
activation_checkpointing.classes = ["A"]
gradient.clip_norm = 0.1
gradient.divide_factor = 3.0
checkpoint.kind = "full"
load.mode = "full"
dialect = "accelerate"
config = "a b.yaml"
plugins = ["libmine.so"]
debug.order_check = -1
debug.force_collectives = true
debug.timeout_s = 1e-09
debug.check_steps = 0
)");
  expect_round_trip(options);
}

TEST(TomlWriter, RoundTrips) {
  Fsdp2Options options;
  options.reshard_after_forward = int64_t{4};
  options.wrap = {WrapPolicy::kSize, {}, 0, {}};
  options.activation_checkpointing = {true, std::nullopt, {}};
  options.debug.timeout_s = 1e300;
  expect_round_trip(options);
  options.strategy = "fsdp2.shard_grad_op";
  options.reshard_after_forward = ReshardAuto{};  // goes with all, and stays as it was written
  options.wrap = {WrapPolicy::kModules, {}, std::nullopt, {"tab\there", "line\nbreak", "\x01\x7f", "Schlüssel \\ \""}};
  options.activation_checkpointing = {true, 3, {}};
  options.debug.timeout_s = 1.0 / 3.0;
  expect_round_trip(options);
}

}  // namespace
}  // namespace fsdp2
