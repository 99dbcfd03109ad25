#include "adapters/key_list.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "registry/host_text.hpp"

namespace fsdp2 {
namespace {

constexpr std::string_view kLineBlanks = " \t\r";

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_of_name(char c) {
  return begins_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.';
}

struct KeyLine {
  std::string_view name;
  std::string_view value;
};

/// Nothing where it is no such line.
std::optional<KeyLine> split_line(std::string_view line) {
  constexpr std::string_view kExport = "export ";
  if (line.starts_with(kExport)) line = without_blanks(line.substr(kExport.size()));
  const size_t end = static_cast<size_t>(std::find_if_not(line.begin(), line.end(), is_of_name) - line.begin());
  const size_t equals = line.find_first_not_of(kLineBlanks, end);
  if (end == 0 || !begins_name(line.front()) || equals == std::string_view::npos || line[equals] != '=') return {};
  return KeyLine{line.substr(0, end), without_blanks(line.substr(equals + 1))};
}

/// Calls `take(line, offset)` for each line that is neither blank nor a comment, until it says false.
template <typename Take>
bool for_each_line(std::string_view text, Take take) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = without_blanks(text.substr(begin, end - begin));
    if (!line.empty() && line.front() != '#' && !take(line, static_cast<size_t>(line.data() - text.data()))) {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

/// Reads one value. `key` names it in errors, at `source`.
class ValueReader {
 public:
  ValueReader(std::string_view text, std::string key, const Source& source)
      : text_(text), key_(std::move(key)), source_(source) {}

  /// As a shell has it.
  std::string of_variable() {
    std::string value;
    if (text_.empty() || (text_.front() != '"' && text_.front() != '\'')) {
      for (; at_ < text_.size() && !is_comment(); ++at_) {
        if (text_[at_] == '"' || text_[at_] == '\'' || text_[at_] == '\\') {
          throw fault("has " + std::string(1, text_[at_]) +
                      " without quotes around the value; put all of it in quotes");
        }
        value += plain();
      }
      return std::string(without_blanks(value));
    }
    const char quote = text_[at_++];
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      const bool escapes = quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() &&
                           std::string_view("\"\\$`").find(text_[at_ + 1]) != std::string_view::npos;
      if (escapes) ++at_;
      value += quote == '"' && !escapes ? plain() : text_[at_];
    }
    if (at_ == text_.size()) throw fault("has a quote that is not closed in its line");
    ++at_;
    const std::string_view rest = without_blanks(text_.substr(at_));
    if (!rest.empty() && rest.front() != '#') throw fault("goes on after its quotes");
    return value;
  }

  /// As TOML, or a bare word.
  std::string of_keyword() {
    char quote = 0;
    for (; at_ < text_.size() && (quote != 0 || !is_comment()); ++at_) {
      const char c = text_[at_];
      if (quote == '"' && c == '\\') {
        ++at_;
      } else if (quote == 0 ? c == '"' || c == '\'' : c == quote) {
        quote = quote == 0 ? c : '\0';
      }
    }
    if (quote != 0) throw fault("has a quote that is not closed in its line");
    const std::string_view value = without_blanks(text_.substr(0, at_));
    if (value.starts_with('[') && !value.ends_with(']')) throw fault("has a list that is not closed in its line");
    return std::string(value);
  }

 private:
  bool is_comment() const {
    return text_[at_] == '#' && (at_ == 0 || kLineBlanks.find(text_[at_ - 1]) != std::string_view::npos);
  }

  /// A character in which the value of another variable would be filled in is refused.
  char plain() const {
    const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : ' ';
    if (text_[at_] == '`' || (text_[at_] == '$' && (begins_name(next) || next == '{' || next == '('))) {
      throw fault(
          "stands for another value, which is not looked up: write the value itself, or put it in single quotes");
    }
    return text_[at_];
  }

  [[nodiscard]] Error fault(const std::string& sentence) const {
    return error_at(source_, key_, "`" + key_ + "` " + sentence);
  }

  std::string_view text_;
  std::string key_;
  Source source_;
  size_t at_ = 0;
};

}  // namespace

bool is_key_list(std::string_view text) {
  size_t lines = 0;
  return for_each_line(text, [&](std::string_view line, size_t) { return ++lines, split_line(line).has_value(); }) &&
         lines > 0;
}

std::vector<HostKey> read_key_list(std::string_view text, const std::string& file) {
  check_host_text(text, file);
  std::vector<HostKey> keys;
  PlaceCounter places(text);
  for_each_line(text, [&](std::string_view line, size_t offset) {
    const std::optional<KeyLine> split = split_line(line);
    Source source;
    source.file = file;
    places.put(split ? static_cast<size_t>(split->name.data() - text.data()) : offset, source);
    if (!split) throw error_at(source, {}, "this line is not name=value");
    HostKey key{std::string(split->name), {}, source};
    ValueReader reader(split->value, key.name, source);
    key.value = is_variable(key.name) ? reader.of_variable() : reader.of_keyword();
    keys.push_back(std::move(key));
    return true;
  });
  drop_earlier_variables(keys);
  return keys;
}

void drop_earlier_variables(std::vector<HostKey>& keys) {
  std::set<std::string> seen;
  std::vector<HostKey> kept;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    if (is_variable(key->name) && !seen.insert(key->name).second) continue;
    kept.push_back(std::move(*key));
  }
  std::reverse(kept.begin(), kept.end());
  keys = std::move(kept);
}

}  // namespace fsdp2
