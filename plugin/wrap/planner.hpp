// The whole way from a model and a configuration to a plan.
#pragma once
#include <cstdint>
#include <optional>

#include "registry/config.hpp"
#include "registry/module_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// Plans for `world` ranks: refuses what is not built, chooses units, runs the strategy. `node`: ranks on a node, where
/// that is known. Config notes are not repeated in the plan's.
Plan make_plan(const ModuleTree& tree, const Config& config, int64_t world, std::optional<int64_t> node = {});

/// The same for options made in a program: faults are named by key, without a place.
Plan make_plan(const ModuleTree& tree, const Fsdp2Options& options, int64_t world);

}  // namespace fsdp2
