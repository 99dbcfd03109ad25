// Known but not built: read and printed, refused by name when it is to run.
#include "adapters/config.hpp"
#include "helpers.hpp"
#include "registry/config.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::text_of;

void check(const std::string& body, int64_t world = 4) {
  check_supported(load_config_text("[fsdp]\n" + body, "t.toml"), world);
}

std::string refusal(const std::string& body, int64_t world = 4) {
  return text_of([&] { check(body, world); });
}

TEST(Supported, WhatRuns) {
  for (const char* body : {"",
                           "version = 2",
                           "strategy = 'full_shard'",
                           "strategy = 'fsdp2.shard_grad_op'",
                           "strategy = 'no_shard'",
                           "reshard_after_forward = true",
                           "reshard_after_forward = 2",
                           "layout = 'ragged'",
                           "layout = 'per_parameter'",
                           "mesh.replicate = 1",
                           "mesh.shard = -1",
                           "mesh.shard = 4",
                           "mesh.replicate = -1\nmesh.shard = 4",
                           "mixed_precision.param = 'bfloat16'\nmixed_precision.output = 'float32'",
                           "mixed_precision.cast_forward_inputs = false",
                           "offload.params = false",
                           "offload.pin_memory = true",
                           "prefetch.forward = 0\nprefetch.backward = 2",
                           "activation_checkpointing = false",
                           "ignored_modules = ['a.*']",
                           "plugins = []",
                           "checkpoint.kind = 'full'",
                           "load.mode = 'broadcast'",
                           "debug.order_check = 0",
                           "debug.order_check = -1",
                           "mesh.replicate = 2",
                           "mesh.shard = 2",
                           "strategy = 'hybrid_shard'",
                           "mixed_precision.reduce = 'float32'",
                           "gradient.divide_factor = 3",
                           "gradient.clip_norm = 1.0",
                           "debug.force_collectives = true",
                           "debug.timeout_s = 3",
                           "debug.check_steps = 9",
                           "wrap.policy = 'every'"}) {
    EXPECT_NO_THROW(check(body)) << body;
  }
}

TEST(Supported, WhatIsRefusedIsNamed) {
  struct Case {
    const char* body;
    const char* text;
  };
  for (const Case& c : {
           Case{"layout = 'flat'",
                "t.toml:2:10: `layout` has a value that is not built yet: only \"ragged\" and \"per_parameter\" are "
                "accepted now"},
           Case{"offload.params = true",
                "t.toml:2:18: `offload.params` has a value that is not built yet: only false is accepted now"},
           Case{
               "activation_checkpointing = { every = 2 }",
               "t.toml:2:38: `activation_checkpointing` has a value that is not built yet: only false is accepted now"},
           Case{"version = 1",
                "t.toml:2:11: `version` = 1 cannot be run: version 1 is read and printed, not run; set `version = 2` "
                "(beside `dialect` and `config`, where another host's file is read) to convert it"},
           Case{"strategy = 'fsdp1.full_shard'",
                "t.toml:2:12: `strategy = \"fsdp1.full_shard\"` is not built yet; accepted now: \"fsdp2.full_shard\", "
                "\"fsdp2.shard_grad_op\", \"fsdp2.hybrid_shard\", \"fsdp2.hybrid_shard_zero2\", \"fsdp2.no_shard\""},
           Case{"strategy = 'acme.mine'",
                "t.toml:2:12: `strategy = \"acme.mine\"` is not a strategy that is registered; accepted now: "
                "\"fsdp2.full_shard\", \"fsdp2.shard_grad_op\", \"fsdp2.hybrid_shard\", \"fsdp2.hybrid_shard_zero2\", "
                "\"fsdp2.no_shard\""},
       }) {
    EXPECT_EQ(refusal(c.body), c.text);
    EXPECT_NO_THROW(load_config_text(std::string("[fsdp]\n") + c.body, "t.toml")) << "reading must not refuse";
  }
}

TEST(Supported, OptionsMadeInAProgram) {
  Config config;
  config.options.offload.params = true;
  const Error error = error_of([&] { check_supported(config, 2); });
  EXPECT_STREQ(error.what(), "`offload.params` has a value that is not built yet: only false is accepted now");
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error.details().key, "offload.params");

  config = {};
  config.options.reshard_after_forward = false;  // contradicts full_shard
  EXPECT_EQ(text_of([&] { check_supported(config, 2); }).find("`reshard_after_forward = false` contradicts"), 0U);

  config = {};
  config.options.dialect = "accelerate";
  config.options.config = "a.yaml";
  EXPECT_EQ(text_of([&] { check_supported(config, 2); }),
            "`dialect` was not followed: these options were read without the adapters");
}

TEST(Supported, ThereMustBeARank) {
  EXPECT_EQ(refusal("", 0), "the number of ranks must be 1 or more, not 0");
}

}  // namespace
}  // namespace fsdp2
