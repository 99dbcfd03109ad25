#include "adapters/process_variables.hpp"

#include <unistd.h>

#include <algorithm>

namespace fsdp2 {

bool reads_variable(std::span<const std::string_view> readers, std::string_view name) {
  return std::any_of(readers.begin(), readers.end(), [&](std::string_view reader) {
    return reader.ends_with('_') ? name.starts_with(reader) : name == reader;
  });
}

std::map<std::string, std::string> process_variables(std::span<const std::string_view> readers) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !reads_variable(readers, text.substr(0, equals))) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace fsdp2
