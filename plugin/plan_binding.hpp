// From a plan to the module it was made for: which objects and slots the plan's names stand for, and what cannot be
// sharded though it can be planned.
#pragma once
#include <vector>

#include "plugin/script/bound_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

struct Binding {
  std::vector<c10::intrusive_ptr<c10::ivalue::Object>> unit_objects;  // one a planned unit
  std::vector<size_t> unit_of_module;                      // for each module of the tree, the unit it is or lies in
  std::vector<std::vector<std::vector<Slot>>> unit_slots;  // for each unit, for each parameter
  std::vector<std::vector<Slot>> written_attributes;       // for each unit, what methods in it and below it write
};

/// Throws Error (kUnsupported) for a unit that runs inside torch.jit.fork: ranks would run forks, and the collectives
/// in them, in orders of their own.
Binding bind(const Plan& plan, const BoundTree& bound);

/// Throws Error (kFailedPrecondition) where an engine holds the module or a part of it, or held it to its end.
void refuse_sharded(const BoundTree& bound);

}  // namespace fsdp2
