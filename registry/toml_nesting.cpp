#include "registry/toml_nesting.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "registry/given.hpp"

namespace fsdp2 {
namespace {

constexpr int64_t kDeepest = 500;

/// The end of a string of TOML that begins at `begin`: the index behind its last quote.
size_t end_of_toml_string(std::string_view text, size_t begin) {
  const char quote = text[begin];
  const bool is_long = text.substr(begin, 3) == std::string(3, quote);
  const std::string end(is_long ? 3 : 1, quote);
  for (size_t i = begin + end.size(); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text.substr(i, end.size()) == end) {
      return i + end.size();
    } else if (!is_long && text[i] == '\n') {
      return i;  // a fault, which the parser reports
    }
  }
  return text.size();
}

}  // namespace

void check_toml_nesting(std::string_view text, const std::string& file) {
  std::vector<int64_t> dots{0};  // of the key that is open, by bracket around it
  int64_t depth = 0;             // brackets and dots in all
  int64_t line = 1;
  const auto start_anew = [&] {
    depth -= dots.back();
    dots.back() = 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const size_t end = end_of_toml_string(text, i);
      for (size_t j = i; j < end; ++j) line += text[j] == '\n' ? 1 : 0;
      i = end - 1;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '\n') {
      ++line;
      if (dots.size() == 1) start_anew();
    } else if (c == ',') {
      start_anew();
    } else if (c == '.') {
      ++dots.back();
      ++depth;
    } else if (c == '[' || c == '{') {
      dots.push_back(0);
      ++depth;
    } else if ((c == ']' || c == '}') && dots.size() > 1) {
      start_anew();
      dots.pop_back();
      --depth;
    }
    if (depth <= kDeepest) continue;
    Source source;
    source.file = file;
    source.line = line;
    source.column = 1;
    throw error_at(source, {}, "keys and brackets are nested more than " + std::to_string(kDeepest) + " deep");
  }
}

}  // namespace fsdp2
