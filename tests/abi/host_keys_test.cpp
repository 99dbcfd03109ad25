// The keys of another host as a list: what the same settings are in a file of that host, and what is refused.
#include <gtest/gtest.h>
#include <fsdp2/plugin.hpp>

#include <functional>

#include "tests/abi/scratch.hpp"
#include "tests/abi/tiny_model.hpp"

namespace fsdp2::testing {
namespace {

class HostKeysAsAList : public ::testing::Test {
 protected:
  Configuration of_file(const std::string& dialect, const std::string& text,
                        const std::vector<std::string>& overrides) const {
    write_file(scratch_.path("host"), text);
    write_file(scratch_.path("train.toml"), "[fsdp]\ndialect = '" + dialect + "'\nconfig = 'host'\n");
    return plugin_.config_from_file(scratch_.path("train.toml"), overrides);
  }

  static Exception fault_of(const std::function<Configuration()>& load) {
    try {
      (void)load();
    } catch (const Exception& error) {
      return error;
    }
    ADD_FAILURE() << "read without a fault";
    return {FSDP2_INTERNAL, "no fault"};
  }

  Scratch scratch_;
  Plugin plugin_ = Plugin::load(plugin_path());
};

TEST_F(HostKeysAsAList, AreTheSameAsAFile) {
  struct Case {
    const char* dialect;
    const char* file;
    HostKeys keys;
  };
  const std::string accelerate =
      "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: false\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 300\n"
      "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_cpu_ram_efficient_loading: true\n";
  const std::vector<Case> cases{
      {"accelerate",
       accelerate.c_str(),
       {{"fsdp_version", "2"},
        {"mixed_precision_policy", "bf16"},
        {"reshard_after_forward", "False"},
        {"auto_wrap_policy", "size_based_wrap"},
        {"min_num_params", "300"},
        {"state_dict_type", "FULL_STATE_DICT"},
        {"cpu_ram_efficient_loading", "true"}}},
      {"accelerate",
       accelerate.c_str(),
       {{"PATH", "/bin"},
        {"ACCELERATE_USE_FSDP", "true"},
        {"ACCELERATE_MIXED_PRECISION", "bf16"},
        {"FSDP_VERSION", "2"},
        {"FSDP_RESHARD_AFTER_FORWARD", "false"},
        {"FSDP_AUTO_WRAP_POLICY", "SIZE_BASED_WRAP"},
        {"FSDP_MIN_NUM_PARAMS", "300"},
        {"FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT"},
        {"FSDP_CPU_RAM_EFFICIENT_LOADING", "true"}}},
      {"transformers",
       R"({"version": 2, "reshard_after_forward": true, "transformer_layer_cls_to_wrap": ["Inner", "Outer"]})",
       {{"version", "2"}, {"reshard_after_forward", "true"}, {"transformer_layer_cls_to_wrap", "['Inner', 'Outer']"}}},
      {"deepspeed",
       R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "gradient_clipping": 0.0})",
       {{"zero_optimization.stage", "2"}, {"bf16.enabled", "true"}, {"gradient_clipping", "0.0"}}},
      {"torch_fsdp1",
       R"({"sharding_strategy": "SHARD_GRAD_OP", "auto_wrap_policy": ["Outer"], "sync_module_states": true})",
       {{"sharding_strategy", "SHARD_GRAD_OP"}, {"auto_wrap_policy", "['Outer']"}, {"sync_module_states", "True"}}},
      {"torch_fsdp1", "{}", {}},  // FullyShardedDataParallel(model)
  };
  const auto model = tiny_model();
  for (const Case& c : cases) {
    const std::vector<std::string> overrides{"version=2", "debug.timeout_s=7"};
    const Configuration expected = of_file(c.dialect, c.file, overrides);
    const Configuration config = plugin_.config_from_keys(c.dialect, c.keys, overrides);
    EXPECT_EQ(config.toml(), expected.toml()) << c.dialect;
    EXPECT_NE(config.toml(), plugin_.config_from_text("[fsdp]\n", overrides).toml())
        << c.dialect << ": nothing was read";
    EXPECT_EQ(plugin_.plan_text(model, config, 4), plugin_.plan_text(model, expected, 4)) << c.dialect;
  }
}

TEST_F(HostKeysAsAList, StandInPlaceOfTheFileThatTheTomlWouldName) {
  const HostKeys keys{{"sharding_strategy", "SHARD_GRAD_OP"}, {"use_orig_params", "true"}};
  const std::string text =
      "[fsdp]\ndialect = 'torch_fsdp1'\nversion = 2\nwrap.policy = 'every'\nlayout = 'per_parameter'\n";
  write_file(scratch_.path("train.toml"), text);
  const Configuration config = plugin_.config_from_file(scratch_.path("train.toml"), {"layout=ragged"}, keys);
  EXPECT_EQ(config.toml(), plugin_.config_from_text(text, {"layout=ragged"}, keys).toml());
  for (const char* line : {"strategy = \"shard_grad_op\"", "wrap.policy = \"every\""}) {
    EXPECT_NE(config.toml().find(line), std::string::npos) << line;
  }
  EXPECT_EQ(config.toml().find("per_parameter"), std::string::npos) << "overrides win";
  EXPECT_NE(config.warning().find("`use_orig_params`"), std::string::npos) << config.warning();
}

TEST_F(HostKeysAsAList, TheEnvironmentOfTheProcessIsNotRead) {
  setenv("ACCELERATE_USE_FSDP", "true", 1);
  setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  setenv("FSDP_VERSION", "2", 1);
  setenv("FSDP_RESHARD_AFTER_FORWARD", "false", 1);
  const Configuration config = plugin_.config_from_keys("accelerate", {{"sharding_strategy", "FULL_SHARD"}});
  for (const char* line : {"version = 1\n", "strategy = \"full_shard\"\n"}) {
    EXPECT_NE(config.toml().find(line), std::string::npos) << config.toml();
  }
  EXPECT_EQ(config.toml().find("bfloat16"), std::string::npos) << config.toml();
  EXPECT_EQ(std::string(fault_of([&] { return plugin_.config_from_keys("accelerate", {}); }).what()),
            "the host's keys: no FSDP is requested: `ACCELERATE_USE_FSDP=true` is missing, without which Accelerate "
            "reads no other of its variables");
}

TEST_F(HostKeysAsAList, FaultsNameTheKeyAndTheNearestName) {
  const HostKeys keys{{"fsdp_version", "2"}};
  const Exception unknown = fault_of([&] { return plugin_.config_from_keys("accelerate", {{"fsdp_verson", "2"}}); });
  EXPECT_STREQ(unknown.what(),
               "the host's keys: Accelerate's plugin has no keyword `fsdp_verson`; did you mean `fsdp_version`?");
  EXPECT_EQ(unknown.code(), FSDP2_CONFIG);
  EXPECT_EQ(unknown.key, "fsdp_verson");
  EXPECT_EQ(unknown.nearest, "fsdp_version");

  const Exception whose = fault_of([&] { return plugin_.config_from_text("[fsdp]\n", {}, keys); });
  EXPECT_STREQ(whose.what(),
               "a list of the host's keys needs `dialect`, which says whose they are: one of \"accelerate\", "
               "\"transformers\", \"deepspeed\", \"torch_fsdp1\"; they look like those of accelerate (the key "
               "`fsdp_version`)");
  EXPECT_EQ(whose.code(), FSDP2_INVALID_ARGUMENT);
  EXPECT_EQ(whose.key, "dialect");
  EXPECT_EQ(whose.nearest, "accelerate");

  const Exception other = fault_of([&] { return plugin_.config_from_keys("acelerate", keys); });
  EXPECT_EQ(other.code(), FSDP2_NOT_FOUND);
  EXPECT_EQ(other.nearest, "accelerate");
  EXPECT_STREQ(fault_of([&] { return plugin_.config_from_keys("lightning", keys); }).what(),
               "override `dialect=\"lightning\"`: dialect `lightning` takes a file, not a list of keys, which are for "
               "\"accelerate\", \"transformers\", \"deepspeed\", \"torch_fsdp1\"");
  EXPECT_STREQ(fault_of([&] { return plugin_.config_from_keys("accelerate", keys, {"config=a.yaml"}); }).what(),
               "override `config=a.yaml`: `config` cannot stand beside a list of the host's keys: leave one of them "
               "out");
  EXPECT_STREQ(fault_of([&] {
                 return plugin_.config_from_keys("accelerate", {{"fsdp_version", "2"}, {"", "2"}});
               }).what(),
               "fsdp2_config_args.host_keys[1]: `=2` is not written name=value");
}

}  // namespace
}  // namespace fsdp2::testing
