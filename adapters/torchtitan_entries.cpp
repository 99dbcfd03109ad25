#include "adapters/torchtitan_entries.hpp"

#include <toml++/toml.h>

#include <sstream>
#include <utility>
#include <vector>

#include "adapters/entry_reading.hpp"
#include "registry/host_text.hpp"
#include "registry/toml_nesting.hpp"

namespace fsdp2 {
namespace {

Source at_toml(const std::string& file, const toml::source_position& position, const std::string& key) {
  return {file, position.line, position.column, {}, key, true};
}

std::optional<Value> titan_value(const toml::node& node) {
  if (const auto* flag = node.as_boolean()) return Value(flag->get());
  if (const auto* whole = node.as_integer()) return Value(whole->get());
  if (const auto* real = node.as_floating_point()) return Value(real->get());
  if (const auto* text = node.as_string()) return Value(text->get());
  return std::nullopt;
}

std::string written_in_toml(const std::string& key, const toml::node& node) {
  if (node.is_array()) return key + " = a list";
  std::ostringstream stream;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) stream << value;
  });
  return key + " = " + stream.str();
}

void collect_titan(const toml::table& table, const std::string& prefix, const std::string& file,
                   TitanEntries& entries) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const toml::table* inner = node.as_table()) {
      collect_titan(*inner, key + ".", file, entries);
      continue;
    }
    entries[key] = {titan_value(node), at_toml(file, name.source().begin, key), at_toml(file, node.source().begin, key),
                    written_in_toml(key, node)};
  }
}

struct FlagWord {
  std::string text;
  int64_t line = 0;
  int64_t column = 0;
};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::vector<FlagWord> split_words(std::string_view text) {
  std::vector<FlagWord> words;
  int64_t line = 1;
  size_t line_begin = 0;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      line_begin = i + 1;
    }
    if (quote == 0 && !in_word && c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
      continue;
    }
    if (quote == 0 && c == '\\' && i + 1 < text.size()) {
      if (text[i + 1] == '\n' || text[i + 1] == '\r') continue;  // the list goes on in the next line
      ++i;
    } else if (quote == 0 && is_blank(c)) {
      in_word = false;
      continue;
    } else if (quote == 0 ? c == '"' || c == '\'' : c == quote) {
      quote = quote == 0 ? c : '\0';
      if (!in_word) words.push_back({{}, line, static_cast<int64_t>(i - line_begin) + 1});
      in_word = true;
      continue;
    }
    if (!in_word) words.push_back({{}, line, static_cast<int64_t>(i - line_begin) + 1});
    in_word = true;
    words.back().text += text[i];
  }
  return words;
}

Value typed(const std::string& text) {
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  YamlEntry entry;
  entry.kind = YamlEntry::Kind::kText;
  entry.text = text;
  if (const std::optional<int64_t> whole = as_int(entry)) return *whole;
  if (const std::optional<double> real = number_in(text)) return *real;
  return text;
}

/// "training.enable_cpu_offload" of "--training.enable-cpu-offload"; the form with "no-" turns a flag off.
std::pair<std::string, bool> key_of(std::string_view flag) {
  std::string key(flag.substr(2));
  for (char& c : key) c = c == '-' ? '_' : c;
  const size_t name = key.rfind('.') + 1;
  const bool negated = key.compare(name, 3, "no_") == 0;
  if (negated) key.erase(name, 3);
  return {key, !negated};
}

/// `place_of(first, last, key)` is where the words of one flag stand.
template <typename PlaceOf>
void collect_flags(const std::vector<FlagWord>& words, PlaceOf place_of, TitanEntries& entries) {
  for (size_t i = 0; i < words.size();) {
    const size_t first = i++;
    const std::string& word = words[first].text;
    if (!word.starts_with("--")) {
      throw error_at(place_of(first, first, word), word,
                     "`" + word + "` belongs to no flag; flags are written --section.key value");
    }
    const size_t equals = word.find('=');
    const auto [key, on] = key_of(word.substr(0, equals));
    std::string written = word;
    std::optional<Value> value(on);
    if (equals != std::string::npos) value = typed(word.substr(equals + 1));
    size_t values = equals == std::string::npos ? 0 : 1;
    while (i < words.size() && !words[i].text.starts_with("--")) {
      value = ++values == 1 ? std::optional<Value>(typed(words[i].text)) : std::nullopt;
      written += " " + words[i++].text;
    }
    const Source source = place_of(first, i - 1, key);
    entries[key] = {value, source, source, written};
  }
}

}  // namespace

TitanEntries read_titan_toml(std::string_view text, const std::string& file) {
  check_host_text(text, file);
  check_toml_nesting(text, file);
  toml::table document;
  try {
    document = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw error_at(at_toml(file, error.source().begin, {}), {},
                   "this is not TOML: " + std::string(error.description()));
  }
  TitanEntries entries;
  collect_titan(document, "", file, entries);
  return entries;
}

bool holds_titan_flags(std::string_view text) {
  const std::vector<FlagWord> words = split_words(text.substr(0, kMostHostBytes));
  return !words.empty() && words.front().text.starts_with("--");
}

TitanEntries read_titan_flags(std::string_view text, const std::string& file) {
  check_host_text(text, file);
  const std::vector<FlagWord> words = split_words(text);
  TitanEntries entries;
  const auto place_of = [&](size_t first, size_t, const std::string& key) {
    return Source{file, words[first].line, words[first].column, {}, key, true};
  };
  collect_flags(words, place_of, entries);
  return entries;
}

void apply_titan_flags(TitanEntries& entries, std::span<const std::string> flags) {
  std::vector<FlagWord> words;
  for (size_t i = 0; i < flags.size(); ++i) {
    check_host_text(flags[i], "flag " + std::to_string(i + 1));
    words.push_back({flags[i], 0, 0});
  }
  const auto place_of = [&](size_t first, size_t last, const std::string& key) {
    Source source;
    for (size_t i = first; i <= last; ++i) source.override_text += (i == first ? "" : " ") + words[i].text;
    source.key = key;
    source.translated = true;
    return source;
  };
  collect_flags(words, place_of, entries);
}

}  // namespace fsdp2
