#include "registry/step_traffic.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace fsdp2 {
namespace {

/// Of `bytes` in equal parts, one a rank, what a rank sends when each ends with the parts of all.
int64_t sent_by_one(int64_t bytes, int64_t ranks) {
  return bytes / ranks * (ranks - 1);
}

CollectiveTraffic gather(const Plan& plan, const PlannedUnit& unit, int64_t ranks) {
  CollectiveTraffic traffic;
  for (const PlannedBuffer& buffer : unit.buffers) {
    const int64_t bytes = buffer.part * plan.mesh.shard * size_of(compute_dtype(buffer));
    traffic += {1, bytes, sent_by_one(bytes, ranks)};
  }
  return traffic;
}

/// Units that a backward pass reaches: by a trainable parameter in them, or by one before, so that their inputs need
/// gradients.
std::vector<bool> in_backward(const Plan& plan, const ModuleTree& tree) {
  std::unordered_map<std::string_view, size_t> places;
  size_t first_trainable = tree.parameters.size();
  for (size_t i = 0; i < tree.parameters.size(); ++i) {
    places.emplace(tree.parameters[i].names.front(), i);
    if (tree.parameters[i].trainable) first_trainable = std::min(first_trainable, i);
  }
  std::vector<size_t> begin(plan.units.size(), tree.parameters.size());  // of all parameters in a unit, the first place
  std::vector<bool> reached(plan.units.size(), false);
  for (size_t u = 0; u < plan.units.size(); ++u) {  // children come first
    const PlannedUnit& unit = plan.units[u];
    for (const PlannedParameter& parameter : unit.parameters) {
      begin[u] = std::min(begin[u], places.at(parameter.name));
      if (unit.buffers[parameter.buffer].trainable) reached[u] = true;
    }
    if (first_trainable < begin[u]) reached[u] = true;
    if (!unit.parent) continue;
    begin[*unit.parent] = std::min(begin[*unit.parent], begin[u]);
    if (reached[u]) reached[*unit.parent] = true;
  }
  return reached;
}

void add_reductions(const Plan& plan, const PlannedUnit& unit, UnitTraffic& traffic) {
  for (const PlannedBuffer& buffer : unit.buffers) {
    if (!buffer.trainable) continue;
    const int64_t part = buffer.part * size_of(buffer.reduced);
    const int64_t whole = part * plan.mesh.shard;
    if (gathers(plan)) traffic.reduce_scatter += {1, whole, sent_by_one(whole, plan.mesh.shard)};
    if (plan.mesh.replicate == 1 && gathers(plan)) continue;
    // A reduce-scatter and an all-gather over the replicas.
    const int64_t reduced = gathers(plan) ? part : whole;
    traffic.all_reduce += {1, reduced, 2 * (reduced - reduced / plan.mesh.replicate)};
  }
}

}  // namespace

CollectiveTraffic& CollectiveTraffic::operator+=(const CollectiveTraffic& other) {
  calls += other.calls;
  bytes += other.bytes;
  sent += other.sent;
  return *this;
}

int64_t ranks_of_backward_gather(const Plan& plan, const PlannedUnit& unit) {
  return unit.reshard_to > 0 ? unit.reshard_to : plan.mesh.shard;
}

std::vector<UnitTraffic> unit_traffic(const Plan& plan, const ModuleTree& tree) {
  const std::vector<bool> reached = in_backward(plan, tree);
  std::vector<UnitTraffic> all(plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const PlannedUnit& unit = plan.units[u];
    all[u].in_backward = reached[u];
    if (gathers(plan)) {
      all[u].gather_in_forward = gather(plan, unit, plan.mesh.shard);
      if (unit.reshard_after_forward && reached[u]) {
        all[u].gather_in_backward = gather(plan, unit, ranks_of_backward_gather(plan, unit));
      }
    }
    if (reduces(plan)) add_reductions(plan, unit, all[u]);
  }
  return all;
}

StepTraffic step_traffic(const Plan& plan, const ModuleTree& tree) {
  StepTraffic sum;
  for (const UnitTraffic& unit : unit_traffic(plan, tree)) {
    sum.all_gather += unit.gather_in_forward;
    sum.all_gather += unit.gather_in_backward;
    sum.reduce_scatter += unit.reduce_scatter;
    sum.all_reduce += unit.all_reduce;
  }
  return sum;
}

}  // namespace fsdp2
