#include "adapters/setting.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "adapters/limits.hpp"

namespace fsdp2 {
namespace {

template <typename Change>
std::string changed(std::string_view text, Change change) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(change(static_cast<unsigned char>(c)));
  return out;
}

/// Without the single underscores between digits that Python's numbers may have, and without a plus in front.
std::optional<std::string> plain_number(std::string_view text) {
  text = without_blanks(text);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-') || text.starts_with('+')) return std::nullopt;
  }
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return plain;
}

template <typename Number>
std::optional<Number> read_number(std::string_view text) {
  const std::optional<std::string> plain = plain_number(text);
  if (!plain || plain->empty()) return std::nullopt;
  Number value = 0;
  const char* const end = plain->data() + plain->size();
  const auto result = std::from_chars(plain->data(), end, value);
  if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

SettingsTable table_of(const Setting& map, const std::string& name, std::string_view prefix, std::string_view added) {
  SettingsTable table;
  if (map.kind == Setting::Kind::kNull) return table;
  if (map.kind != Setting::Kind::kMap) {
    throw error_at(map.source, name, (name.empty() ? "the file" : "`" + name + "`") + " must be a map");
  }
  for (const Setting& member : map.members) {
    std::string key = member.key;
    if (!key.starts_with(prefix)) key.insert(0, added);
    table.insert_or_assign(std::move(key), member);
  }
  return table;
}

const Setting* find_member(const Setting& map, std::string_view key) {
  const auto found =
      std::find_if(map.members.rbegin(), map.members.rend(), [&](const Setting& member) { return member.key == key; });
  return found == map.members.rend() ? nullptr : &*found;
}

const Setting* find_entry(const SettingsTable& table, std::string_view key) {
  const auto found = table.find(key);
  if (found == table.end() || found->second.kind == Setting::Kind::kNull) return nullptr;
  return &found->second;
}

std::optional<int64_t> int_of(std::string_view text) {
  return read_number<int64_t>(text);
}

std::optional<int64_t> as_int(const Setting& setting) {
  if (setting.kind == Setting::Kind::kInt) return setting.whole;
  if (setting.kind == Setting::Kind::kText) return int_of(setting.text);
  return std::nullopt;
}

std::optional<double> as_number(const Setting& setting) {
  if (setting.kind == Setting::Kind::kInt) return static_cast<double>(setting.whole);
  if (setting.kind == Setting::Kind::kReal) return setting.real;
  if (setting.kind != Setting::Kind::kText) return std::nullopt;
  const std::optional<double> value = read_number<double>(setting.text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<bool> as_truth(const Setting& setting) {
  constexpr std::array<std::string_view, 6> kYes{"y", "yes", "t", "true", "on", "1"};
  constexpr std::array<std::string_view, 6> kNo{"n", "no", "f", "false", "off", "0"};
  const std::string word = lower_case(setting.text);
  if (std::find(kYes.begin(), kYes.end(), word) != kYes.end()) return true;
  if (std::find(kNo.begin(), kNo.end(), word) != kNo.end()) return false;
  return std::nullopt;
}

bool is_truthy(const Setting& setting) {
  switch (setting.kind) {
    case Setting::Kind::kNull:
      return false;
    case Setting::Kind::kBool:
      return setting.flag;
    case Setting::Kind::kInt:
      return setting.whole != 0;
    case Setting::Kind::kReal:
      return setting.real != 0;
    case Setting::Kind::kText:
      return !setting.text.empty();
    case Setting::Kind::kList:
      return !setting.list.empty();
    case Setting::Kind::kMap:
      return !setting.members.empty();
  }
  return true;
}

std::string lower_case(std::string_view text) {
  return changed(text, [](int c) { return std::tolower(c); });
}

std::string upper_case(std::string_view text) {
  return changed(text, [](int c) { return std::toupper(c); });
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string shown(const std::string& text) {
  if (text.size() <= limits::kShownBytes) return text;
  size_t end = limits::kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

std::string as_written(const Setting& setting) {
  const std::string key = setting.source.key + (setting.source.line > 0 && !setting.is_pair ? ": " : "=");
  switch (setting.kind) {
    case Setting::Kind::kNull:
      return key + "null";
    case Setting::Kind::kBool:
      return key + (setting.flag ? "true" : "false");
    case Setting::Kind::kList:
      return key + "a list";
    case Setting::Kind::kMap:
      return key + "a map";
    default:
      return key + shown(setting.text);
  }
}

Error setting_fault(const Setting& setting, const std::string& sentence, const std::string& nearest) {
  return error_at(setting.source, setting.source.key, "`" + as_written(setting) + "` " + sentence, nearest);
}

void ReadBudget::count(size_t depth, const Source& source) {
  if (depth > limits::kDepth) {
    throw error_at(source, source.key,
                   "maps and lists lie deeper in one another than " + std::to_string(limits::kDepth) + " levels");
  }
  if (++settings_ > limits::kSettings) {
    throw error_at(source, source.key,
                   "there are more than " + std::to_string(limits::kSettings) + " keys and list elements");
  }
}

void ReadBudget::check_text(std::string_view text, const Source& source) {
  if (text.find('\0') != std::string_view::npos) throw error_at(source, source.key, "a text has a null character");
}

void ReadBudget::check_key(std::string_view key, const Source& source) {
  check_text(key, source);
  if (key.size() <= limits::kKeyBytes) return;
  throw error_at(source, {}, "a key is longer than " + std::to_string(limits::kKeyBytes) + " bytes");
}

}  // namespace fsdp2
