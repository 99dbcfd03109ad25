// The case files: NAME.yaml (.toml, .json) beside NAME.expected.toml, which lists canonical keys that must come out
// equal, keys that must be absent, keys of the one warning, and keys that notes must name; or the keys one of which the
// error must name. [context] is what the caller knows besides: a version to convert to, numbers of ranks.
#include <toml++/toml.h>

#include <string>

#include "adapters/adapters.hpp"
#include "helpers.hpp"
#include "registry/config.hpp"
#include "registry/toml_reader.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2 {
namespace {

bool is_named(const std::vector<std::string>& texts, const std::string& key) {
  for (const std::string& text : texts) {
    if (text.find(key) != std::string::npos) return true;
  }
  return false;
}

std::vector<std::string> list_of(const toml::table& table, const char* key) {
  std::vector<std::string> list;
  if (const auto* array = table["expect"][key].as_array()) {
    for (const auto& element : *array) list.push_back(element.value<std::string>().value());
  }
  return list;
}

TranslationContext context_of(const toml::table& table) {
  TranslationContext context;
  std::vector<std::string> counts;
  const auto* given = table["context"].as_table();
  if (given == nullptr) return context;
  for (const auto& [key, node] : *given) {
    const int64_t number = node.value<int64_t>().value();
    if (key.str() == "version") {
      context.version = number;
    } else {
      counts.push_back(std::string(key.str()) + "=" + std::to_string(number));
    }
  }
  context.ranks = read_rank_counts(counts);
  return context;
}

class DialectCase : public testing::TestWithParam<const char*> {};

TEST_P(DialectCase, ComesOutAsStated) {
  const std::string path = GetParam();  // "torchtitan/hsdp_never.toml"
  const std::string dialect = path.substr(0, path.find('/'));
  const std::string folder = std::string(FSDP2_SOURCE_DIR) + "/tests/cases/dialects/";
  const std::string expected_text = test::read_file(folder + path.substr(0, path.rfind('.')) + ".expected.toml");
  const toml::table expected = toml::parse(expected_text);
  const std::string text = test::read_file(folder + path);
  const TranslationContext context = context_of(expected);
  if (expected["expect"]["outcome"].value<std::string>() == "error") {
    const std::string error = test::text_of([&] { find_translation(dialect)(text, "host", context); });
    bool named = false;
    for (const std::string& key : list_of(expected, "error_keys")) named = named || is_named({error}, key);
    EXPECT_TRUE(named) << error;
    return;
  }
  ASSERT_EQ(expected["expect"]["outcome"].value<std::string>(), "ok");
  const Translation translation = find_translation(dialect)(text, "host", context);

  const GivenKeys wanted = read_given(expected_text, "expected.toml");
  ASSERT_FALSE(wanted.empty());
  for (const auto& [key, entry] : wanted) {
    ASSERT_TRUE(translation.given.contains(key)) << key;
    EXPECT_EQ(translation.given.at(key).value, entry.value) << key;
  }
  for (const std::string& key : list_of(expected, "absent")) EXPECT_FALSE(translation.given.contains(key)) << key;
  EXPECT_EQ(translation.obsolete, list_of(expected, "obsolete"));
  EXPECT_EQ(translation.warning.empty(), translation.obsolete.empty());
  for (const std::string& key : translation.obsolete) EXPECT_TRUE(is_named({translation.warning}, key)) << key;
  for (const std::string& key : list_of(expected, "notes")) EXPECT_TRUE(is_named(translation.notes, key)) << key;

  // What an adapter reads can be printed and read again.
  const Config config = resolve({}, translation.given);
  EXPECT_EQ(read_options(to_toml(config.options), "printed"), config.options);
}

INSTANTIATE_TEST_SUITE_P(Hosts, DialectCase,
                         testing::Values("accelerate/v1_hybrid_size.yaml", "accelerate/v2_mesh_leftovers.yaml",
                                         "accelerate/v1_hybrid_nodes.yaml", "composer/hsdp_pure.yaml",
                                         "torch_fsdp1/grad_op_to_2.json", "torchfort/own_block.yaml",
                                         "torchtitan/too_few_ranks.toml", "transformers/legacy_words.json",
                                         "torchtitan/hsdp_never.toml", "deepspeed/hpz_bf16.json",
                                         "lightning/norm_clip.yaml"));

}  // namespace
}  // namespace fsdp2
