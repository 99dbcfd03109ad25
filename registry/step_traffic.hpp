// What one training step moves between ranks: one forward, one backward and one step of the optimizer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "registry/module_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// Collectives of one kind. A unit has one a buffer.
struct CollectiveTraffic {
  int64_t calls = 0;
  int64_t bytes = 0;  // of whole buffers, all ranks' parts and padding included, as `fsdp2_statistics` counts them
  int64_t sent = 0;   // by one rank to others
  bool operator==(const CollectiveTraffic&) const = default;

  CollectiveTraffic& operator+=(const CollectiveTraffic& other);
};

struct UnitTraffic {
  CollectiveTraffic gather_in_forward;   // among the ranks of mesh.shard
  CollectiveTraffic gather_in_backward;  // the same, or among the ranks of a block
  CollectiveTraffic reduce_scatter;      // among the ranks of mesh.shard
  CollectiveTraffic all_reduce;          // among the ranks of mesh.replicate
  bool in_backward = false;              // its backward runs
};

struct StepTraffic {
  CollectiveTraffic all_gather;
  CollectiveTraffic reduce_scatter;
  CollectiveTraffic all_reduce;
};

/// Of each unit of the plan. Every unit runs once, in the order of the model's parameters, and all trainable parameters
/// get gradients; a unit takes part in backward where a parameter in it, or before it, is trainable.
std::vector<UnitTraffic> unit_traffic(const Plan& plan, const ModuleTree& tree);

StepTraffic step_traffic(const Plan& plan, const ModuleTree& tree);

/// Ranks that a unit's parameters are gathered among in backward.
int64_t ranks_of_backward_gather(const Plan& plan, const PlannedUnit& unit);

}  // namespace fsdp2
