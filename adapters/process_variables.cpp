#include "adapters/process_variables.hpp"

#include <unistd.h>

#include <algorithm>

namespace fsdp2 {

std::map<std::string, std::string> process_variables(std::span<const std::string_view> beginnings) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const bool wanted = std::any_of(beginnings.begin(), beginnings.end(),
                                    [&](std::string_view beginning) { return text.starts_with(beginning); });
    if (wanted) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace fsdp2
