#include "registry/keys.hpp"

#include <gtest/gtest.h>

#include <set>

namespace fsdp2 {
namespace {

TEST(Keys, TheCanonicalOnes) {
  const std::set<std::string_view> expected{"version",
                                            "strategy",
                                            "reshard_after_forward",
                                            "layout",
                                            "wrap.policy",
                                            "wrap.layer_classes",
                                            "wrap.min_num_params",
                                            "wrap.modules",
                                            "ignored_modules",
                                            "mesh.replicate",
                                            "mesh.shard",
                                            "mixed_precision.param",
                                            "mixed_precision.reduce",
                                            "mixed_precision.output",
                                            "mixed_precision.cast_forward_inputs",
                                            "offload.params",
                                            "offload.pin_memory",
                                            "prefetch.forward",
                                            "prefetch.backward",
                                            "activation_checkpointing",
                                            "activation_checkpointing.every",
                                            "activation_checkpointing.classes",
                                            "gradient.clip_norm",
                                            "gradient.divide_factor",
                                            "checkpoint.kind",
                                            "load.mode",
                                            "dialect",
                                            "config",
                                            "plugins",
                                            "debug.order_check",
                                            "debug.force_collectives",
                                            "debug.timeout_s",
                                            "debug.check_steps"};
  std::set<std::string_view> names;
  for (const KeySpec& spec : key_specs()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_FALSE(spec.allowed.empty()) << spec.name;
    EXPECT_EQ(find_key(spec.name), &spec);
  }
  EXPECT_EQ(names, expected);
  EXPECT_EQ(find_key("wrap"), nullptr);
}

TEST(Keys, ARefusedValueSaysWhatItWas) {
  Fsdp2Options options;
  const auto fault = find_key("mixed_precision.param")->take(options, std::string("bf16"));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->sentence, "not \"bf16\"");
  EXPECT_FALSE(options.mixed_precision.param.has_value());
}

TEST(Keys, KindsInWords) {
  EXPECT_EQ(kind_of(Value(true)), "a boolean");
  EXPECT_EQ(kind_of(Value(int64_t{1})), "a whole number");
  EXPECT_EQ(kind_of(Value(1.5)), "a decimal number");
  EXPECT_EQ(kind_of(Value(std::string())), "a string");
  EXPECT_EQ(kind_of(Value(std::vector<std::string>())), "a list of strings");
}

}  // namespace
}  // namespace fsdp2
