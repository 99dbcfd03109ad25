#include "adapters/detect.hpp"

#include "adapters/config.hpp"
#include "helpers.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::text_of;

std::string case_file(const std::string& path) {
  return test::read_file(std::string(FSDP2_SOURCE_DIR) + "/tests/cases/dialects/" + path);
}

std::string_view detected(const std::string& text, const std::string& file = "a.yaml") {
  return detect_dialect(text, file).dialect;
}

TEST(Detect, CaseFiles) {
  EXPECT_EQ(detected(case_file("accelerate/v1_hybrid_size.yaml")), "accelerate");
  EXPECT_EQ(detected(case_file("accelerate/v2_mesh_leftovers.yaml")), "accelerate");
  EXPECT_EQ(detected(case_file("deepspeed/hpz_bf16.json"), "a.json"), "deepspeed");
  EXPECT_EQ(detected(case_file("transformers/legacy_words.json"), "a.json"), "transformers");
  EXPECT_EQ(detected(case_file("lightning/norm_clip.yaml")), "lightning");
  EXPECT_EQ(detected(case_file("torchtitan/hsdp_never.toml"), "a.toml"), "torchtitan");
  EXPECT_EQ(detected(case_file("torchtitan/hsdp_never.toml"), "without_suffix"), "torchtitan");
}

TEST(Detect, OneOfEach) {
  EXPECT_EQ(detected("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"), "accelerate");
  EXPECT_EQ(detected("ACCELERATE_USE_FSDP=true\nFSDP_SHARDING_STRATEGY=FULL_SHARD\n", "env.sh"), "accelerate");
  EXPECT_EQ(detected("fsdp_version = 2\ncpu_offload = true\n", "a.toml"), "accelerate");
  EXPECT_EQ(detected(R"({"fsdp": "full_shard", "bf16": true, "output_dir": "x",
                         "fsdp_config": {"transformer_layer_cls_to_wrap": ["B"]}})",
                     "args.json"),
            "transformers");
  EXPECT_EQ(detected(R"({"transformer_layer_cls_to_wrap": ["B"], "version": 2, "cpu_ram_efficient_loading": true})",
                     "fsdp.json"),
            "transformers");
  EXPECT_EQ(detected(R"({"zero_optimization": {"stage": 3}, "train_batch_size": "auto"})", "ds.json"), "deepspeed");
  EXPECT_EQ(detected("{\n  // comments make this no JSON, and no YAML\n  \"zero_optimization\": {/* all of it */ "
                     "\"stage\": 3},\n  \"train_batch_size\": 8,\n}\n",
                     "ds_config.json"),
            "deepspeed");
  EXPECT_EQ(detected("trainer:\n  strategy: fsdp\n  precision: 16\n"), "lightning");
  EXPECT_EQ(detected("precision: amp_bf16\nmax_duration: 1ep\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n"
                     "  mixed_precision: PURE\n"),
            "composer");
  EXPECT_EQ(
      detected("general:\n  report_frequency: 1\nmodel:\n  type: torchscript\n  parameters:\n    filename: a.pt\n"
               "optimizer:\n  type: adam\n  parameters:\n    learning_rate: 1e-3\nfsdp:\n  strategy: full_shard\n"),
      "torchfort");
  EXPECT_EQ(detected("sharding_strategy: HYBRID_SHARD\ndevice_mesh: [2, 4]\nbackward_prefetch: BACKWARD_PRE\n"),
            "torch_fsdp1");
  EXPECT_EQ(detected("[training]\ndata_parallel_degree = 8\n", "a.toml"), "torchtitan");
  EXPECT_EQ(detected("--parallelism.data_parallel_shard_degree 8 --training.steps 3\n", "flags.txt"), "torchtitan");
}

TEST(Detect, NotSure) {
  const DialectGuess nothing = detect_dialect("a: 1\nb: 2\n", "accelerate.yaml");
  EXPECT_EQ(nothing.dialect, "");
  EXPECT_TRUE(nothing.candidates.empty());
  EXPECT_EQ(nothing.explain(), "it has no key by which a host could be told");
  const DialectGuess both = detect_dialect("distributed_type: FSDP\nzero_optimization: {stage: 2}\n", "a.yaml");
  EXPECT_EQ(both.dialect, "");
  ASSERT_EQ(both.candidates.size(), 2U);
  EXPECT_EQ(both.explain(), "accelerate (the key `distributed_type`); deepspeed (the key `zero_optimization`)");
  EXPECT_EQ(detected("fsdp_config:\n  sharding_strategy: FULL_SHARD\n"), "");
  EXPECT_EQ(detected("cpu_offload: true\n"), "");
  const DialectGuess own = detect_dialect("[fsdp]\nstrategy = 'full_shard'\n[parallelism]\nx = 1\n", "a.toml");
  EXPECT_EQ(own.dialect, "");
  EXPECT_EQ(own.explain(), "it has a table [fsdp], as this plugin's own files do");
  for (const char* text : {"", "hello", "[1, 2]", "\x01\xff", "{", "--", "a: [", "= ="}) {
    EXPECT_EQ(detected(text), "") << text;
    EXPECT_EQ(detected(text, "a.toml"), "") << text;
  }
}

TEST(Detect, HostileText) {
  std::string laughs = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 30; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    laughs +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {k: " + last + ", l: " + last + ", m: " + last + "}\n";
  }
  EXPECT_EQ(detected(laughs), "");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a.";
  for (const std::string& text :
       {deep + "a = 1\n", std::string(100'000, '['), std::string(100'000, '{'), std::string(500'000, '"'),
        std::string(500'000, '\n'), std::string(2'000'000, 'x') + ": 1"}) {
    EXPECT_EQ(detected(text), "");
    EXPECT_EQ(detected(text, "a.toml"), "");
  }
}

class DetectFile : public testing::Test {
 protected:
  static std::string write(const std::string& name, const std::string& text) {
    return test::write_file(testing::TempDir() + name, text);
  }
};

TEST_F(DetectFile, ConfigWithoutDialect) {
  const std::string yaml = write("fsdp2_detect.yaml", "trainer:\n  strategy: fsdp\n");
  const std::string toml = write("fsdp2_detect.toml", "[fsdp]\nconfig = 'fsdp2_detect.yaml'\nstrategy = 'no_shard'\n");
  const Config config = load_config(toml);
  EXPECT_EQ(config.options.version, 1);
  EXPECT_EQ(config.options.strategy, "no_shard");
  ASSERT_FALSE(config.notes.empty());
  EXPECT_EQ(config.notes.front(), yaml + ": taken as the dialect lightning (the key `trainer.strategy`)");
  write("fsdp2_detect.yaml", "a: 1\n");
  EXPECT_EQ(text_of([&] { load_config(toml); }),
            toml + ":2:10: `config` needs `dialect` beside it: it is not clear whose file `" + yaml +
                "` is: it has no key by which a host could be told");
}

TEST_F(DetectFile, ComposersVersionComesFromTheEnvironment) {
  write("fsdp2_composer.yaml",
        "precision: amp_bf16\nmax_duration: 1ep\nfsdp_config:\n  reshard_after_forward: false\n");
  const std::string toml = write("fsdp2_composer.toml", "[fsdp]\nconfig = 'fsdp2_composer.yaml'\n");
  ASSERT_EQ(setenv("FSDP_VERSION", "2", 1), 0);
  const Config of_2 = load_config(toml);
  ASSERT_EQ(unsetenv("FSDP_VERSION"), 0);
  EXPECT_EQ(of_2.options.version, 2);
  EXPECT_EQ(of_2.options.strategy, "shard_grad_op");
  EXPECT_EQ(load_config(toml).options.version, 1);
}

}  // namespace
}  // namespace fsdp2
