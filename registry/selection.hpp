// What a wrap policy chose: the units of a model, before a strategy decides what happens to them.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

namespace fsdp2 {

struct SelectedUnit {
  size_t module = 0;               // index into ModuleTree::modules, the first entry of its object
  std::optional<size_t> parent;    // the unit that encloses it, an index into the selection; unset for the root
  std::vector<size_t> parameters;  // indices into ModuleTree::parameters, ascending
  bool operator==(const SelectedUnit&) const = default;
};

}  // namespace fsdp2
