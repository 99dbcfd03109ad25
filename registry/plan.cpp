#include "registry/plan.hpp"

#include <algorithm>

namespace fsdp2 {
namespace {

int64_t whole_bytes(const Plan& plan, const PlannedBuffer& buffer) {
  const int64_t whole = buffer.copied_out > 0 ? buffer.copied_out : buffer.part * plan.mesh.shard;
  return whole * size_of(compute_dtype(buffer));
}

/// Bytes of a unit's gathered parts, where they are not the full parameters.
int64_t copied_bytes(const Plan& plan, const PlannedUnit& unit) {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) {
    if (buffer.copied_out > 0) bytes += buffer.part * plan.mesh.shard * size_of(compute_dtype(buffer));
  }
  return bytes;
}

/// Bytes of the full parameters that are other memory than the shards.
int64_t extra_bytes(const Plan& plan, const PlannedUnit& unit) {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) {
    if (is_copied(plan, buffer)) bytes += whole_bytes(plan, buffer);
  }
  return bytes;
}

}  // namespace

DType compute_dtype(const PlannedBuffer& buffer) {
  return buffer.cast.value_or(buffer.dtype);
}

bool is_copied(const Plan& plan, const PlannedBuffer& buffer) {
  return gathers(plan) || buffer.cast.has_value();
}

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
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) bytes += whole_bytes(plan, buffer);
  return bytes;
}

int64_t shard_bytes(const PlannedUnit& unit) {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) bytes += buffer.part * size_of(buffer.dtype);
  return bytes;
}

int64_t shard_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlannedUnit& unit : plan.units) bytes += shard_bytes(unit);
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
  int64_t kept = 0;
  std::vector<int64_t> kept_inside(plan.units.size());  // of the units below each one; children come first
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const PlannedUnit& unit = plan.units[u];
    const int64_t own = unit.reshard_after_forward ? 0 : extra_bytes(plan, unit);
    kept += own;
    if (unit.parent) kept_inside[*unit.parent] += own + kept_inside[u];
  }
  int64_t peak = 0;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    int64_t bytes = kept + copied_bytes(plan, plan.units[u]);
    // Of units that are kept, what lies inside comes after.
    if (!plan.units[u].reshard_after_forward) bytes -= kept_inside[u];
    for (const PlannedUnit* unit = &plan.units[u];; unit = &plan.units[*unit->parent]) {
      if (unit->reshard_after_forward) bytes += extra_bytes(plan, *unit);
      if (!unit->parent) break;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

ShardRange shard_range(const PlannedUnit& unit, const PlannedParameter& parameter, int64_t shard_rank) {
  const int64_t count = numel(parameter.shape);
  const int64_t length = parameter.chunk ? parameter.chunk->size : unit.buffers[parameter.buffer].part;
  const int64_t first = shard_rank * length - (parameter.chunk ? 0 : parameter.offset);
  return {std::clamp<int64_t>(first, 0, count), std::clamp<int64_t>(first + length, 0, count)};
}

int64_t shard_offset(const PlannedUnit& unit, const PlannedParameter& parameter, int64_t shard_rank) {
  if (parameter.chunk) return parameter.chunk->offset;
  const int64_t part = unit.buffers[parameter.buffer].part;
  const int64_t begin = parameter.offset + shard_range(unit, parameter, shard_rank).begin;
  return std::clamp<int64_t>(begin - shard_rank * part, 0, part);
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
