#include "registry/registry.hpp"

#include <algorithm>

namespace fsdp2 {

const Strategy* find_strategy(std::string_view full_name) {
  const std::span<const Strategy> all = strategies();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Strategy& s) { return s.name == full_name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace fsdp2
