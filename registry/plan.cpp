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

std::vector<size_t> outermost_first(const Plan& plan, bool last_first) {
  std::vector<std::vector<size_t>> inside(plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u) {
    if (plan.units[u].parent) inside[*plan.units[u].parent].push_back(u);
  }
  std::vector<size_t> order;
  std::vector<size_t> left;
  if (!plan.units.empty()) left.push_back(plan.units.size() - 1);
  while (!left.empty()) {
    const size_t unit = left.back();
    left.pop_back();
    order.push_back(unit);
    if (!last_first) std::reverse(inside[unit].begin(), inside[unit].end());
    left.insert(left.end(), inside[unit].begin(), inside[unit].end());
  }
  return order;
}

/// Whether `unit` is `other` or encloses it.
bool encloses(const Plan& plan, size_t unit, size_t other) {
  for (;; other = *plan.units[other].parent) {
    if (other == unit) return true;
    if (!plan.units[other].parent) return false;
  }
}

/// Whose gathers start when the unit at `place` runs.
std::vector<size_t> started_ahead(const Plan& plan, const std::vector<size_t>& order, size_t place, bool backward) {
  const PlannedUnit& unit = plan.units[order[place]];
  const std::vector<size_t>& named = backward ? unit.ahead_in_backward : unit.ahead_in_forward;
  if (!named.empty()) return named;
  const int64_t depth = backward ? plan.prefetch_backward : plan.prefetch_forward;
  const size_t count = std::min(static_cast<size_t>(depth), order.size() - place - 1);
  const auto first = order.begin() + static_cast<int64_t>(place) + 1;
  return {first, first + static_cast<int64_t>(count)};
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

int64_t bytes_of(const TreeParameter& parameter) {
  return numel(parameter.shape) * size_of(parameter.dtype);
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

int64_t block_bytes(const Plan& plan, const PlannedUnit& unit) {
  if (unit.reshard_to == 0) return 0;
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) bytes += buffer.part * size_of(compute_dtype(buffer));
  return bytes * (plan.mesh.shard / unit.reshard_to);
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

std::vector<size_t> forward_order(const Plan& plan) {
  return outermost_first(plan, /*last_first=*/false);
}

std::vector<size_t> backward_order(const Plan& plan) {
  return outermost_first(plan, /*last_first=*/true);
}

int64_t peak_unsharded_bytes(const Plan& plan) {
  return std::max(peak_unsharded_bytes(plan, Pass::kForward), peak_unsharded_bytes(plan, Pass::kBackward));
}

int64_t peak_unsharded_bytes(const Plan& plan, Pass pass, std::span<const int64_t> beside) {
  const bool backward = pass == Pass::kBackward;
  const std::vector<size_t> order = backward ? backward_order(plan) : forward_order(plan);
  int64_t kept = 0;
  std::vector<int64_t> kept_inside(plan.units.size());  // of the units below each one; children come first
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const PlannedUnit& unit = plan.units[u];
    const int64_t own = unit.reshard_after_forward ? block_bytes(plan, unit) : extra_bytes(plan, unit);
    kept += own;
    if (unit.parent) kept_inside[*unit.parent] += own + kept_inside[u];
  }
  int64_t peak = 0;
  std::vector<size_t> ahead;  // gathered, of units that have not run yet
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t u = order[i];
    const bool was_ahead = std::erase(ahead, u) > 0;
    // Of units that are kept, what lies inside comes after.
    const bool is_kept = !plan.units[u].reshard_after_forward;
    int64_t bytes = kept - (is_kept ? kept_inside[u] : 0) + (beside.empty() ? 0 : beside[u]);
    for (const PlannedUnit* unit = &plan.units[u];; unit = &plan.units[*unit->parent]) {
      if (unit->reshard_after_forward) bytes += extra_bytes(plan, *unit);
      if (!unit->parent) break;
      bytes -= block_bytes(plan, plan.units[*unit->parent]);  // whole, so nothing else is kept of it
    }
    // Beside the whole when backward begins to gather it, and when its call ends: by then what lies inside has run.
    const int64_t own_block = block_bytes(plan, plan.units[u]);
    const int64_t own_parts = copied_bytes(plan, plan.units[u]);
    peak = std::max(peak, bytes + own_parts);
    const auto add = [&](size_t next) {
      const PlannedUnit& unit = plan.units[next];
      const bool is_counted = !unit.reshard_after_forward && !(is_kept && encloses(plan, u, next));
      bytes += (is_counted ? 0 : extra_bytes(plan, unit)) + copied_bytes(plan, unit);
    };
    for (const size_t next : ahead) {
      add(next);
      bytes -= block_bytes(plan, plan.units[next]);
    }
    // A gather that ran ahead is copied out while others are in flight, and has done with the block.
    peak = std::max(peak, bytes + own_parts - (was_ahead ? own_block : 0));
    for (const size_t next : started_ahead(plan, order, i, backward)) {
      const bool is_whole = encloses(plan, next, u) || std::find(ahead.begin(), ahead.end(), next) != ahead.end();
      if (is_whole) continue;
      ahead.push_back(next);
      add(next);
      peak = std::max(peak, bytes - own_block);
      bytes -= block_bytes(plan, plan.units[next]);
    }
    // Of the units whose forward ends before the next one's begins, each keeps its block while it is still whole.
    for (size_t ending = u; !backward && i + 1 < order.size() && !encloses(plan, ending, order[i + 1]);
         ending = *plan.units[ending].parent) {
      peak = std::max(peak, bytes);
      if (plan.units[ending].reshard_after_forward) bytes -= extra_bytes(plan, plan.units[ending]);
      bytes += block_bytes(plan, plan.units[*plan.units[ending].parent]);  // was taken off above
    }
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
