#include "registry/registry.hpp"

#include <string>
#include <vector>

#include "registry/error.hpp"
#include "registry/given.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {

const Strategy& find_strategy(std::string_view full_name) {
  std::vector<std::string_view> names;
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == full_name) return strategy;
    names.push_back(strategy.name);
  }
  throw error_at({}, "strategy",
                 "no strategy is called `" + std::string(full_name) + "`; there are " + quoted_list(names),
                 nearest_name(full_name, names), ErrorCode::kNotFound);
}

}  // namespace fsdp2
