#include "adapters/yaml_block.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "registry/host_text.hpp"

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

/// Digits of YAML 1.1: 0b binary, 0x hexadecimal, 0 octal, else decimal, with underscores and a sign.
std::optional<int64_t> yaml_int(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0b") || text.starts_with("0x")) {
    base = text[1] == 'b' ? 2 : 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
  }
  if (text.empty() || text[0] == '_' || text[0] == '-' || text[0] == '+') return std::nullopt;
  std::string digits(negative ? "-" : "");
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return c != '_'; });
  int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return value;
}

/// A decimal number of YAML 1.1 has a point, and a sign in its exponent: "1e8" is text there.
std::optional<double> yaml_real(std::string_view text) {
  const size_t exponent = text.find_first_of("eE");
  if (text.substr(0, exponent).find('.') == std::string_view::npos) return std::nullopt;
  if (exponent != std::string_view::npos) {
    const std::string_view power = text.substr(exponent + 1);
    if (!power.starts_with('+') && !power.starts_with('-')) return std::nullopt;
  }
  Setting written;
  written.kind = Setting::Kind::kText;
  std::copy_if(text.begin(), text.end(), std::back_inserter(written.text), [](char c) { return c != '_'; });
  return as_number(written);
}

void type_scalar(Setting& setting, const YAML::Node& node) {
  setting.kind = Setting::Kind::kText;
  setting.text = node.Scalar();
  if (node.Tag() != "?") return;  // quoted, or tagged as text
  if (is_one_of(setting.text, kNullWords)) {
    setting.kind = Setting::Kind::kNull;
  } else if (is_one_of(setting.text, kTrueWords) || is_one_of(setting.text, kFalseWords)) {
    setting.kind = Setting::Kind::kBool;
    setting.flag = is_one_of(setting.text, kTrueWords);
    setting.text = setting.flag ? "True" : "False";
  } else if (const auto whole = yaml_int(setting.text)) {
    setting.kind = Setting::Kind::kInt;
    setting.whole = *whole;
    setting.text = std::to_string(*whole);
  } else if (const auto real = yaml_real(setting.text)) {
    setting.kind = Setting::Kind::kReal;
    setting.real = *real;
  }
}

class YamlReader {
 public:
  explicit YamlReader(const std::string& file) : file_(file) {}

  /// `key` is that under which the node lies.
  Setting read(const YAML::Node& node, const std::string& key, size_t depth) {
    Setting setting;
    setting.source = at(file_, node.Mark(), key);
    setting.key_source = setting.source;
    budget_.count(depth, setting.source);
    if (node.IsScalar()) {
      ReadBudget::check_text(node.Scalar(), setting.source);
      type_scalar(setting, node);
    } else if (node.IsSequence()) {
      setting.kind = Setting::Kind::kList;
      for (const YAML::Node& element : node) setting.list.push_back(read(element, key, depth + 1).text);
    } else if (node.IsMap()) {
      setting.kind = Setting::Kind::kMap;
      read_members(node, setting, depth);
    }
    return setting;
  }

 private:
  void read_members(const YAML::Node& node, Setting& map, size_t depth) {
    std::vector<Setting> own;
    for (const auto& item : node) {
      if (!item.first.IsScalar()) {
        throw error_at(at(file_, item.first.Mark(), map.source.key), map.source.key, "a key must be a plain word");
      }
      const std::string& key = item.first.Scalar();
      ReadBudget::check_key(key, at(file_, item.first.Mark(), {}));
      if (key == "<<" && item.first.Tag() == "?") {
        merge(item.second, map, depth);
        continue;
      }
      Setting member = read(item.second, key, depth + 1);
      member.key = key;
      member.key_source = at(file_, item.first.Mark(), key);
      own.push_back(std::move(member));
    }
    std::move(own.begin(), own.end(), std::back_inserter(map.members));
  }

  /// "<<: *other" brings the keys of other maps, of which the first one counts; those of the map itself count more.
  void merge(const YAML::Node& node, Setting& map, size_t depth) {
    std::vector<YAML::Node> others;
    if (node.IsMap()) others.push_back(node);
    if (node.IsSequence()) {
      for (const YAML::Node& other : node) others.push_back(other);
    }
    for (auto other = others.rbegin(); other != others.rend(); ++other) {
      if (!other->IsMap()) throw error_at(at(file_, node.Mark(), "<<"), "<<", "`<<` must be a map, or a list of maps");
      Setting merged = read(*other, map.source.key, depth + 1);
      std::move(merged.members.begin(), merged.members.end(), std::back_inserter(map.members));
    }
  }

  const std::string& file_;
  ReadBudget budget_;
};

}  // namespace

Setting read_yaml(std::string_view text, const std::string& file) {
  check_host_text(text, file);
  YAML::Node root;
  try {
    root = YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    throw error_at(at(file, error.mark, {}), {}, "this is not YAML: " + shown(without_broken_characters(error.msg)));
  }
  return YamlReader(file).read(root, {}, 0);
}

}  // namespace fsdp2
