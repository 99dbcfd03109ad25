// Files of other hosts come from outside: whatever they hold, an adapter ends with a translation or an error.
#include <ctime>
#include <random>

#include "adapters/adapters.hpp"
#include "adapters/detect.hpp"
#include "helpers.hpp"

namespace fsdp2 {
namespace {

using test::repeated;

/// Through every adapter, for both versions. Anything but an Error fails the test.
void translate_by_all(const std::string& text) {
  for (const Adapter& adapter : adapters()) {
    for (const std::optional<int64_t>& version : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
      TranslationContext context;
      context.version = version;
      try {
        adapter.translate(text, "hostile", context);
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()), "");
      }
    }
  }
  detect_dialect(text, "hostile.yaml");
  detect_dialect(text, "hostile.toml");
}

TEST(HostileFiles, ShapesThatParsersChokeOn) {
  const std::string laughs =
      "a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nfsdp_config: {k: *c}\ntrainer: {strategy: *c}\n";
  std::string keys;
  for (size_t i = 0; i < 5'000; ++i) keys += "  k" + std::to_string(i) + ": 1\n";
  for (const std::string& text :
       {std::string(),
        std::string("x"),
        std::string("[1, 2]"),
        std::string("? [a]\n: b\n"),
        std::string("&a {b: *a}"),
        std::string("fsdp_config: &a {fsdp_version: *a}\ntrainer: &b {strategy: *b}\nmodel: &c {type: *c}\n"),
        std::string("fsdp: &a {wrap: *a}\nmodel: {}\n"),
        laughs,
        repeated("{a: ", 100'000),
        repeated("[", 100'000),
        repeated("- ", 100'000),
        repeated("? ", 100'000),
        repeated("a.", 100'000) + "a = 1",
        repeated("a: &x *x\n", 1000),
        std::string("fsdp_config:\n") + keys,
        std::string("trainer:\n  strategy: fsdp\n") + keys,
        "model: {}\nfsdp:\n" + keys,
        "distributed_type: FSDP\nfsdp_config:\n" + keys,
        std::string("trainer: {strategy: ") + std::string(500'000, 's') + "}",
        std::string(500'000, 'k') + ": 1",
        "fsdp_config: {" + std::string(200'000, 'k') + ": 1}",
        std::string(1000, '\0'),
        std::string("\xff\xfe\x00\x01", 4),
        std::string("a: !!binary x\nb: !!python/object:os.system {}\n"),
        std::string("<<: {a: 1}\ntrainer: {<<: *b}\n"),
        std::string("[a]\n[a]\n"),
        std::string("--") + repeated(" ", 100'000),
        repeated("--a.b=\"", 10'000),
        std::string((1U << 20U) + 1, 'x'),
        std::string("%YAML 9.9\n---\na: b\n--- !<\n")}) {
    const std::clock_t begin = std::clock();  // of the processor: other programs do not count
    translate_by_all(text);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20) << text.substr(0, 40);
  }
}

TEST(HostileFiles, MutatedFiles) {
  std::mt19937 random(7);  // NOLINT: the same files on every run
  const std::string folder = std::string(FSDP2_SOURCE_DIR) + "/tests/cases/dialects/";
  const std::string pieces = "{}[]:,#&*!|>'\"%@`-?=.\n\t \\0123456789axe";
  for (const char* path : {"accelerate/v1_hybrid_size.yaml", "torchtitan/hsdp_never.toml", "lightning/norm_clip.yaml",
                           "deepspeed/hpz_bf16.json", "transformers/legacy_words.json"}) {
    const std::string text = test::read_file(folder + path);
    for (int round = 0; round < 60; ++round) {
      std::string mutant = text;
      for (int change = 0; change < 3; ++change) {
        const size_t at = random() % mutant.size();
        switch (random() % 4) {
          case 0:
            mutant[at] = pieces[random() % pieces.size()];
            break;
          case 1:
            mutant.insert(at, 1, pieces[random() % pieces.size()]);
            break;
          case 2:
            mutant.erase(at, random() % 8);
            break;
          default:
            mutant.insert(at, mutant.substr(random() % mutant.size(), random() % 40));
        }
        if (mutant.empty()) mutant = "x";
      }
      translate_by_all(mutant);
    }
  }
}

}  // namespace
}  // namespace fsdp2
