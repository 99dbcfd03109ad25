#include "adapters/yaml_block.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace fsdp2 {
namespace {

Source at(const std::string& file, const YAML::Mark& mark, const std::string& key) {
  Source source;
  source.file = file;
  if (!mark.is_null()) {
    source.line = mark.line + 1;
    source.column = mark.column + 1;
  }
  source.key = key;
  source.translated = true;
  return source;
}

template <size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr std::array<std::string_view, 9> kTrueWords{"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"};
constexpr std::array<std::string_view, 9> kFalseWords{"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"};
constexpr std::array<std::string_view, 5> kNullWords{"", "~", "null", "Null", "NULL"};

/// Decimal digits with underscores and a sign, as both YAML 1.1 and Python's int() have them.
std::optional<int64_t> decimal(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_' && i > 0 && i + 1 < text.size()) continue;
    if (c == '+' && i == 0) continue;
    digits += c;
  }
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || result.ec != std::errc{} || result.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

void type_scalar(YamlEntry& entry, const YAML::Node& node) {
  entry.kind = YamlEntry::Kind::kText;
  entry.text = node.Scalar();
  if (node.Tag() != "?") return;  // quoted, or tagged as text
  if (is_one_of(entry.text, kNullWords)) {
    entry.kind = YamlEntry::Kind::kNull;
  } else if (is_one_of(entry.text, kTrueWords) || is_one_of(entry.text, kFalseWords)) {
    entry.kind = YamlEntry::Kind::kBool;
    entry.flag = is_one_of(entry.text, kTrueWords);
    entry.text = entry.flag ? "True" : "False";
  } else if (const auto whole = decimal(entry.text)) {
    entry.kind = YamlEntry::Kind::kInt;
    entry.whole = *whole;
    entry.text = std::to_string(*whole);
  }
}

YamlEntry read_entry(const YAML::Node& key, const YAML::Node& value, const std::string& file) {
  YamlEntry entry;
  entry.key_source = at(file, key.Mark(), key.Scalar());
  entry.source = at(file, value.Mark(), key.Scalar());
  if (value.IsScalar()) {
    type_scalar(entry, value);
  } else if (value.IsSequence()) {
    entry.kind = YamlEntry::Kind::kList;
    for (const YAML::Node& element : value) entry.list.push_back(element.IsScalar() ? element.Scalar() : "");
  } else if (value.IsMap()) {
    entry.kind = YamlEntry::Kind::kMap;
  }
  return entry;
}

template <typename Change>
std::string changed(std::string_view text, Change change) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(change(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

YamlBlock read_block(const YAML::Node& node, const std::string& file, const std::string& name, std::string_view prefix,
                     std::string_view added) {
  YamlBlock block;
  if (!node.IsDefined() || node.IsNull()) return block;
  if (!node.IsMap()) {
    throw error_at(at(file, node.Mark(), name), name,
                   (name.empty() ? "the file" : "`" + name + "`") + " must be a map");
  }
  for (const auto& item : node) {
    if (!item.first.IsScalar()) {
      throw error_at(at(file, item.first.Mark(), name), name, "a key must be a plain word");
    }
    std::string key = item.first.Scalar();
    if (!key.starts_with(prefix)) key.insert(0, added);
    block.insert_or_assign(std::move(key), read_entry(item.first, item.second, file));
  }
  return block;
}

const YamlEntry* find_entry(const YamlBlock& block, std::string_view key) {
  const auto found = block.find(key);
  if (found == block.end() || found->second.kind == YamlEntry::Kind::kNull) return nullptr;
  return &found->second;
}

std::optional<int64_t> as_int(const YamlEntry& entry) {
  if (entry.kind == YamlEntry::Kind::kInt) return entry.whole;
  if (entry.kind == YamlEntry::Kind::kText) return decimal(entry.text);
  return std::nullopt;
}

std::optional<bool> as_truth(const YamlEntry& entry) {
  constexpr std::array<std::string_view, 6> kYes{"y", "yes", "t", "true", "on", "1"};
  constexpr std::array<std::string_view, 6> kNo{"n", "no", "f", "false", "off", "0"};
  const std::string word = lower_case(entry.text);
  if (is_one_of(word, kYes)) return true;
  if (is_one_of(word, kNo)) return false;
  return std::nullopt;
}

bool is_truthy(const YamlEntry& entry) {
  switch (entry.kind) {
    case YamlEntry::Kind::kNull:
      return false;
    case YamlEntry::Kind::kBool:
      return entry.flag;
    case YamlEntry::Kind::kInt:
      return entry.whole != 0;
    case YamlEntry::Kind::kText:
      return !entry.text.empty();
    case YamlEntry::Kind::kList:
      return !entry.list.empty();
    case YamlEntry::Kind::kMap:
      return true;
  }
  return true;
}

std::string lower_case(std::string_view text) {
  return changed(text, [](int c) { return std::tolower(c); });
}

std::string upper_case(std::string_view text) {
  return changed(text, [](int c) { return std::toupper(c); });
}

std::string as_written(const YamlEntry& entry) {
  switch (entry.kind) {
    case YamlEntry::Kind::kBool:
      return entry.source.key + ": " + (entry.flag ? "true" : "false");
    case YamlEntry::Kind::kList:
      return entry.source.key + ": a list";
    case YamlEntry::Kind::kMap:
      return entry.source.key + ": a map";
    default:
      return entry.source.key + ": " + entry.text;
  }
}

}  // namespace fsdp2
