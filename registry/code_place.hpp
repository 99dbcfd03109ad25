// Where in its source a model does something.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace fsdp2 {

/// A line of the source that a module was made from. Empty: unknown.
struct CodePlace {
  std::string file = {};
  std::optional<int64_t> line = {};  // from 1
};

/// " (net.py, line 12)", or nothing.
inline std::string in_brackets(const CodePlace& place) {
  if (place.file.empty()) return {};
  return " (" + place.file + (place.line ? ", line " + std::to_string(*place.line) : "") + ")";
}

}  // namespace fsdp2
