// Strategies by name. A strategy is a pure function from a model's units and the options to a plan.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "registry/module_tree.hpp"
#include "registry/options.hpp"
#include "registry/plan.hpp"
#include "registry/selection.hpp"

namespace fsdp2 {

/// `mesh` is the one asked for; a strategy may settle on another of the same size (no_shard replicates).
using StrategyFunction = Plan (*)(const ModuleTree& tree, std::span<const SelectedUnit> units, const Mesh& mesh,
                                  const Fsdp2Options& options);

struct Strategy {
  std::string_view name;  // full name, "fsdp2.full_shard"
  std::string_view help;  // one sentence
  StrategyFunction make;
};

/// The plan of these units, as `options.layout` has it; each reshards after its forward until a strategy says
/// otherwise.
Plan lay_out_units(std::string_view strategy, const ModuleTree& tree, std::span<const SelectedUnit> units,
                   const Mesh& mesh, const Fsdp2Options& options);

/// All strategies that are built in, in the order in which they are listed to a person.
std::span<const Strategy> strategies();

/// The strategy of that full name, or null. (check_supported() has the error, with the place and the nearest name.)
const Strategy* find_strategy(std::string_view full_name);

}  // namespace fsdp2
