#include "adapters/config_keys.hpp"

#include <toml++/toml.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "adapters/limits.hpp"
#include "adapters/torchtitan_entries.hpp"
#include "registry/error.hpp"
#include "registry/host_text.hpp"
#include "registry/toml_nesting.hpp"

namespace fsdp2 {
namespace {

constexpr int kDeepestKey = 5;
constexpr size_t kMostKeys = 20'000;  // through aliases a short text can stand for a long one

bool begins(const std::set<std::string, std::less<>>& names, std::string_view prefix) {
  const auto found = names.lower_bound(prefix);
  return found != names.end() && found->starts_with(prefix);
}

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

void add_toml(const toml::table& table, const std::string& prefix, int depth, ConfigKeys& keys) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    keys.at.insert(key);
    if (const auto* text = node.as_string()) keys.pairs.insert(key + "=" + text->get());
    if (const toml::table* inner = node.as_table(); inner != nullptr && depth < kDeepestKey) {
      add_toml(*inner, key + ".", depth + 1, keys);
    }
  }
}

void add_yaml(const YAML::Node& node, const std::string& prefix, int depth, size_t& left, ConfigKeys& keys) {
  for (const auto& item : node) {
    if (left == 0) return;
    --left;
    if (!item.first.IsDefined() || !item.first.IsScalar()) continue;
    const std::string key = prefix + item.first.Scalar();
    keys.at.insert(key);
    if (item.second.IsScalar()) keys.pairs.insert(key + "=" + item.second.Scalar());
    if (item.second.IsMap() && depth < kDeepestKey) add_yaml(item.second, key + ".", depth + 1, left, keys);
  }
}

std::optional<ConfigKeys> keys_of_toml(std::string_view text, const std::string& file) {
  ConfigKeys keys;
  keys.format = "TOML";
  try {
    check_toml_nesting(text, file);
    const toml::table table = toml::parse(text, file);
    add_toml(table, "", 1, keys);
    keys.has_own_table = table["fsdp"].is_table();
  } catch (const Error&) {
    return std::nullopt;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
  return keys;
}

std::optional<ConfigKeys> keys_of_yaml(std::string_view text) {
  ConfigKeys keys;
  keys.format = "YAML or JSON";
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    size_t left = kMostKeys;
    if (root.IsMap()) add_yaml(root, "", 1, left, keys);
  } catch (const YAML::Exception&) {
    return std::nullopt;
  }
  return keys;
}

/// Words before ':' or '=', wherever they stand: JSON with comments, variables of an environment.
ConfigKeys keys_of_text(std::string_view text) {
  ConfigKeys keys;
  keys.format = "text";
  keys.has_own_table = text.starts_with("[fsdp]") || text.find("\n[fsdp]") != std::string_view::npos;
  for (size_t i = 0; i < text.size() && keys.at.size() < kMostKeys;) {
    if (!is_word_character(text[i])) {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < text.size() && is_word_character(text[i])) ++i;
    size_t end = i;
    while (end < text.size() && (text[end] == '"' || text[end] == '\'' || text[end] == ' ')) ++end;
    if (end < text.size() && (text[end] == ':' || text[end] == '=') && i - begin < 100) {
      keys.at.emplace(text.substr(begin, i - begin));
    }
    i = std::max(i, end);
  }
  return keys;
}

}  // namespace

bool ConfigKeys::has_prefix(std::string_view prefix) const {
  return begins(at, prefix);
}

bool ConfigKeys::has_pair_prefix(std::string_view prefix) const {
  return begins(pairs, prefix);
}

ConfigKeys read_config_keys(std::string_view text, const std::string& file) {
  text = text.substr(0, kMostHostBytes);
  if (holds_titan_flags(text)) {
    ConfigKeys keys;
    try {
      for (const auto& [key, entry] : read_titan_flags(text, file)) keys.at.insert(key);
    } catch (const Error&) {
      return keys_of_text(text);
    }
    keys.format = "flags";
    return keys;
  }
  const bool is_toml = file.ends_with(".toml");
  std::optional<ConfigKeys> keys = is_toml ? keys_of_toml(text, file) : keys_of_yaml(text);
  if (!keys || keys->at.empty()) {
    std::optional<ConfigKeys> other = is_toml ? keys_of_yaml(text) : keys_of_toml(text, file);
    if (other && !other->at.empty()) keys = std::move(other);
  }
  return keys && !keys->at.empty() ? *keys : keys_of_text(text);
}

ConfigKeys keys_of_list(std::span<const HostKey> list) {
  ConfigKeys keys;
  keys.format = "list";
  for (const HostKey& key : list.first(std::min(list.size(), kMostKeys))) {
    const std::string name = key.name.substr(0, limits::kKeyBytes);
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      keys.at.insert(name.substr(0, dot));
    }
    keys.at.insert(name);
    keys.pairs.insert(name + "=" + key.value);
  }
  return keys;
}

}  // namespace fsdp2
