// A plan by a strategy from outside.
#pragma once
#include "registry/config.hpp"
#include "registry/module_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// Asks the strategy for units and mesh, checks them, and lays the units out. Its faults, and what it may not choose,
/// are errors that name it, its library, and the module.
Plan plan_by(const ExtensionStrategy& strategy, const ModuleTree& tree, const Config& config, const Mesh& mesh);

}  // namespace fsdp2
