#include "registry/plan.hpp"

#include <algorithm>

namespace fsdp2 {
namespace {

int64_t part_bytes(const PlannedUnit& unit) {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) bytes += buffer.part * size_of(buffer.dtype);
  return bytes;
}

}  // namespace

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

bool gathers(const Plan& plan) {
  return plan.mesh.shard > 1 || (plan.force_collectives && plan.mesh.replicate == 1);
}

bool reduces(const Plan& plan) {
  return plan.mesh.shard * plan.mesh.replicate > 1 || plan.force_collectives;
}

int64_t unsharded_bytes(const Plan& plan, const PlannedUnit& unit) {
  return part_bytes(unit) * plan.mesh.shard;
}

int64_t shard_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlannedUnit& unit : plan.units) bytes += part_bytes(unit);
  return bytes;
}

int64_t parameter_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlannedUnit& unit : plan.units) {
    for (const PlannedBuffer& buffer : unit.buffers) bytes += buffer.filled * size_of(buffer.dtype);
  }
  return bytes;
}

int64_t peak_unsharded_bytes(const Plan& plan) {
  if (!gathers(plan)) return 0;
  int64_t kept = 0;
  for (const PlannedUnit& unit : plan.units) {
    if (!unit.reshard_after_forward) kept += unsharded_bytes(plan, unit);
  }
  int64_t deepest = 0;
  for (const PlannedUnit& innermost : plan.units) {
    int64_t open = 0;
    for (const PlannedUnit* unit = &innermost;; unit = &plan.units[*unit->parent]) {
      if (unit->reshard_after_forward) open += unsharded_bytes(plan, *unit);
      if (!unit->parent) break;
    }
    deepest = std::max(deepest, open);
  }
  return kept + deepest;
}

ShardRange shard_range(const PlannedUnit& unit, const PlannedParameter& parameter, int64_t shard_rank) {
  const int64_t part = unit.buffers[parameter.buffer].part;
  const int64_t count = numel(parameter.shape);
  const int64_t first = shard_rank * part - parameter.offset;
  return {std::clamp<int64_t>(first, 0, count), std::clamp<int64_t>(first + part, 0, count)};
}

std::vector<int64_t> shard_shape(const PlannedParameter& parameter, ShardRange range) {
  const int64_t count = range.end - range.begin;
  if (parameter.shape.empty()) return {count};
  std::vector<int64_t> shape = parameter.shape;
  const std::vector<int64_t> inner(shape.begin() + 1, shape.end());
  const int64_t row = numel(inner);
  if (row == 0) {
    shape.front() = 0;
    return shape;
  }
  if (range.begin % row != 0 || range.end % row != 0) return {count};
  shape.front() = count / row;
  return shape;
}

}  // namespace fsdp2
