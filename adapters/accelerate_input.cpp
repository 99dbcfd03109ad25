#include "adapters/accelerate_input.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "adapters/accelerate_names.hpp"
#include "adapters/translator.hpp"
#include "adapters/yaml_block.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2::accelerate {
namespace {

constexpr std::string_view kSizesPrefix = "parallelism_config_";

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_top(const SettingsTable& top, const std::string& file) {
  for (const auto& [key, entry] : top) {
    if (contains(kTopKeys, key)) continue;
    throw error_at(entry.key_source, key, "Accelerate knows no key `" + key + "` at the top level",
                   nearest_name(key, kTopKeys));
  }
  const Setting* type = find_entry(top, "distributed_type");
  if (type == nullptr) {
    Source source;
    source.file = file;
    throw error_at(source, "distributed_type", "`distributed_type: FSDP` is missing");
  }
  if (type->text != "FSDP" && type->text != "DEEPSPEED") {
    throw setting_fault(*type, "is not translated; accepted now: FSDP, DEEPSPEED");
  }
  const Setting* place_of_work = find_entry(top, "compute_environment");
  if (place_of_work != nullptr && place_of_work->text != "LOCAL_MACHINE") {
    throw setting_fault(*place_of_work, "is not translated; accepted now: LOCAL_MACHINE");
  }
}

SettingsTable block_of(const SettingsTable& top, const std::string& key, std::string_view prefix = {},
                       std::string_view added = {}) {
  const Setting* block = find_entry(top, key);
  return block == nullptr ? SettingsTable() : table_of(*block, key, prefix, added);
}

void take_variable(const Setting& member, Input& input) {
  const std::string& name = member.source.key;
  if (name.starts_with("FSDP_")) {
    const bool classes = name == kClassesVariable;
    input.fsdp.emplace(classes ? "fsdp_transformer_layer_cls_to_wrap" : lower_case(name), member);
  } else if (name == "ACCELERATE_MIXED_PRECISION") {
    input.top.emplace("mixed_precision", member);
  } else if (name.starts_with("ACCELERATE_USE_")) {
    input.top.emplace(lower_case(name), member);
  } else if (name.starts_with("PARALLELISM_CONFIG_")) {
    input.parallelism.emplace(lower_case(name), member);
  }
}

void take_keyword(const Setting& member, Input& input) {
  const std::string& name = member.key;
  const auto* const found = std::find_if(kPluginKeywords.begin(), kPluginKeywords.end(),
                                         [&](const PluginKeyword& row) { return row.keyword == name; });
  if (found == kPluginKeywords.end()) {
    std::vector<std::string_view> names;
    for (const PluginKeyword& row : kPluginKeywords) names.push_back(row.keyword);
    throw error_at(member.source, name, "Accelerate's plugin has no keyword `" + name + "`", nearest_name(name, names));
  }
  if (found->key.empty()) return;
  if (name == "parallelism_config") {
    for (const auto& [key, entry] : table_of(member, name)) {
      input.parallelism.insert_or_assign(std::string(kSizesPrefix) + key, entry);
    }
    return;
  }
  if (member.kind != Setting::Kind::kNull) input.fsdp.insert_or_assign(std::string(found->key), member);
}

bool says_true(const SettingsTable& top, std::string_view variable) {
  const Setting* entry = find_entry(top, variable);
  return entry != nullptr && lower_case(entry->text) == "true";
}

}  // namespace

Input read_launch_file(std::string_view text, const std::string& file) {
  const Setting root = read_yaml(text, file);
  Input input;
  input.top = table_of(root, "");
  check_top(input.top, file);
  input.fsdp = block_of(input.top, "fsdp_config", "fsdp", "fsdp_");
  input.parallelism = block_of(input.top, "parallelism_config");
  input.deepspeed = block_of(input.top, "deepspeed_config");
  return input;
}

Input read_plugin_keys(std::span<const HostKey> keys, const std::string& name) {
  const Setting root = settings_of(keys, name);
  Input input;
  input.launched = false;
  bool keywords = false;
  for (const Setting& member : root.members) {
    if (is_variable(member.source.key)) take_variable(member, input);
  }
  if (!says_true(input.top, "accelerate_use_parallelism_config")) input.parallelism.clear();
  for (const Setting& member : root.members) {
    if (is_variable(member.source.key)) continue;
    take_keyword(member, input);
    keywords = true;
  }
  if (keywords || says_true(input.top, "accelerate_use_fsdp")) return input;
  throw error_at(root.source, "ACCELERATE_USE_FSDP",
                 "no FSDP is requested: `ACCELERATE_USE_FSDP=true` is missing, without which Accelerate reads no other "
                 "of its variables");
}

void put_counts(const RankCounts& ranks, Input& input, std::vector<std::string>& notes) {
  const auto put = [&](const std::string& key, const std::string& name, std::optional<int64_t> count) {
    if (const auto note = put_count(input.top, key, name, count)) notes.push_back(*note);
  };
  put("num_processes", "num_processes", ranks.num_processes);
  put("num_machines", "num_nodes", ranks.num_nodes);
}

bool is_keyword(const Input& input, const Setting& entry) {
  return !input.launched && !is_variable(entry.source.key);
}

Precision read_precision(const Input& input) {
  Precision precision;
  const Setting* old = find_entry(input.top, "fp16");
  precision.entry = find_entry(input.top, "mixed_precision");
  if (precision.entry != nullptr) {
    const Setting& entry = *precision.entry;
    const bool is_no = entry.kind == Setting::Kind::kBool && !entry.flag;
    precision.name = is_no ? "no" : input.launched ? lower_case(entry.text) : entry.text;
  } else if (old != nullptr && is_truthy(*old)) {
    precision.name = "fp16";
    precision.entry = old;
  }
  if (contains(kPrecisions, precision.name)) return precision;
  throw setting_fault(*precision.entry, "must be one of " + quoted_list(kPrecisions),
                      nearest_name(precision.name, kPrecisions));
}

}  // namespace fsdp2::accelerate
