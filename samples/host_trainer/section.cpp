#include "samples/host_trainer/section.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "samples/host_trainer/nearest.hpp"

namespace trainer {
namespace {

/// A value as the file has it, and its kind: `the string "ten"`.
std::string describe(const toml::node& node) {
  std::ostringstream text;
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) {
      text << "the "
           << (node.is_integer()          ? "integer"
               : node.is_floating_point() ? "number"
               : node.is_boolean()        ? "boolean"
               : node.is_string()         ? "string"
                                          : "date or time")
           << ' ';
      text << toml::node_view<const toml::node>(value);
    }
  });
  return text.str();
}

}  // namespace

std::string place_of(const toml::source_region& region) {
  const std::string path = region.path ? *region.path : "";
  if (path.starts_with("--set")) return path + ": ";
  return path + ':' + std::to_string(region.begin.line) + ':' + std::to_string(region.begin.column) + ": ";
}

Section::Section(const toml::table& table, std::string name, std::vector<std::string> keys)
    : table_(table), name_(std::move(name)) {
  for (const auto& [key, value] : table_) {
    const std::string text(key.str());
    if (std::find(keys.begin(), keys.end(), text) != keys.end()) continue;
    const std::string near = nearest(text, keys);
    throw ConfigError(place_of(key.source()) + "unknown key \"" + name_ + '.' + text + '"' +
                      (near.empty() ? "" : "; did you mean \"" + name_ + '.' + near + "\"?") + " [" + name_ +
                      "] knows: " + join(keys) + ".");
  }
}

std::string Section::place(const std::string& key) const {
  const toml::node* node = table_.get(key);
  return place_of(node ? node->source() : table_.source());
}

void Section::fail(const std::string& key, const std::string& sentence) const {
  throw ConfigError(place(key) + quoted(key) + ' ' + sentence);
}

void Section::missing(const std::string& key, const std::string& meaning) const {
  throw ConfigError(place(key) + '[' + name_ + "] needs the key \"" + key + "\": " + meaning + ".");
}

void Section::wrong_type(const std::string& key, const std::string& wanted) const {
  fail(key, "must be " + wanted + ", not " + describe(*table_.get(key)) + ".");
}

std::optional<std::string> Section::text(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const auto value = table_.get(key)->value_exact<std::string>();
  if (!value || value->empty()) wrong_type(key, "a string with something in it");
  return value;
}

std::optional<std::string> Section::choice(const std::string& key, const std::vector<std::string>& choices) const {
  if (!has(key)) return std::nullopt;
  const auto value = table_.get(key)->value_exact<std::string>();
  if (!value) wrong_type(key, "one of " + join(choices));
  if (std::find(choices.begin(), choices.end(), *value) == choices.end())
    fail(key, "is \"" + *value + "\" but must be one of " + join(choices) + did_you_mean(*value, choices));
  return value;
}

std::optional<int64_t> Section::integer(const std::string& key, int64_t least, int64_t most) const {
  if (!has(key)) return std::nullopt;
  const auto value = table_.get(key)->value_exact<int64_t>();
  if (!value || *value < least || *value > most)
    wrong_type(key, most == INT64_MAX ? "an integer of at least " + std::to_string(least)
                                      : "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

std::optional<double> Section::number(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const toml::node& node = *table_.get(key);
  const auto value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value || !std::isfinite(*value) || *value < 0) wrong_type(key, "a finite number of at least 0");
  return value;
}

std::optional<std::vector<std::string>> Section::texts(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const toml::array* list = table_.get(key)->as_array();
  if (!list) wrong_type(key, "a list of strings");
  if (list->empty()) fail(key, "is empty; it needs at least one string.");
  std::vector<std::string> values;
  for (const toml::node& node : *list) {
    const auto value = node.value_exact<std::string>();
    if (!value) throw ConfigError(place_of(node.source()) + quoted(key) + " must be a list of strings.");
    values.push_back(*value);
  }
  return values;
}

const toml::table* Section::table(const std::string& key) const {
  if (!has(key)) return nullptr;
  const toml::table* value = table_.get(key)->as_table();
  if (!value) wrong_type(key, "a table");
  return value;
}

}  // namespace trainer
