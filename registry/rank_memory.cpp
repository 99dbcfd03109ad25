#include "registry/rank_memory.hpp"

#include <algorithm>
#include <array>

namespace fsdp2 {
namespace {

constexpr std::array kOptimizers{
    OptimizerState{"adamw", 2},        OptimizerState{"adam", 2},    OptimizerState{"sgd", 0},
    OptimizerState{"sgd_momentum", 1}, OptimizerState{"rmsprop", 1}, OptimizerState{"adagrad", 1},
    OptimizerState{"none", 0},
};

int64_t owned(const Plan& plan, int64_t shard_rank) {
  int64_t bytes = 0;
  for (const PlannedUnit& unit : plan.units) {
    for (const PlannedParameter& parameter : unit.parameters) {
      const PlannedBuffer& buffer = unit.buffers[parameter.buffer];
      if (!buffer.trainable) continue;
      const ShardRange range = shard_range(unit, parameter, shard_rank);
      bytes += (range.end - range.begin) * size_of(buffer.dtype);
    }
  }
  return bytes;
}

int64_t gradient_shards(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlannedUnit& unit : plan.units) {
    for (const PlannedBuffer& buffer : unit.buffers) {
      if (buffer.trainable) bytes += buffer.part * size_of(buffer.dtype);
    }
  }
  return bytes;
}

/// Bytes of the trainable parameters of the rank that owns most.
int64_t most_owned(const Plan& plan) {
  constexpr int64_t kFew = 4096;
  if (plan.mesh.shard > kFew) return gradient_shards(plan);  // with padding, which some rank has none of
  int64_t most = 0;
  for (int64_t rank = 0; rank < plan.mesh.shard; ++rank) most = std::max(most, owned(plan, rank));
  return most;
}

/// As autograd leaves them, of one unit.
int64_t full_gradients(const PlannedUnit& unit) {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) {
    if (buffer.trainable) bytes += buffer.filled * size_of(compute_dtype(buffer));
  }
  return bytes;
}

/// As they are reduced, of one unit.
int64_t packed_gradients(const Plan& plan, const PlannedUnit& unit) {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) {
    if (buffer.trainable) bytes += buffer.part * plan.mesh.shard * size_of(buffer.reduced);
  }
  return reduces(plan) ? bytes : 0;
}

/// Full gradients that are there when a unit's backward ends: its own, those of units around it, which may be complete
/// but wait for it, and of the unit before it those that are on their way. By unit.
std::vector<int64_t> gradients_beside(const Plan& plan) {
  std::vector<int64_t> beside(plan.units.size());
  int64_t on_the_way = 0;
  for (const size_t u : backward_order(plan)) {
    beside[u] = on_the_way;
    for (const PlannedUnit* unit = &plan.units[u];; unit = &plan.units[*unit->parent]) {
      beside[u] += full_gradients(*unit);
      if (!unit->parent) break;
    }
    // The root's own are reduced last.
    if (plan.units[u].parent) on_the_way = packed_gradients(plan, plan.units[u]);
  }
  return beside;
}

}  // namespace

const OptimizerState* find_optimizer_state(std::string_view name) {
  const auto found =
      std::find_if(kOptimizers.begin(), kOptimizers.end(), [&](const OptimizerState& o) { return o.name == name; });
  return found == kOptimizers.end() ? nullptr : &*found;
}

std::vector<std::string_view> optimizer_names() {
  std::vector<std::string_view> names;
  names.reserve(kOptimizers.size());
  for (const OptimizerState& optimizer : kOptimizers) names.push_back(optimizer.name);
  return names;
}

RankMemory rank_memory(const Plan& plan, const OptimizerState& optimizer) {
  RankMemory memory;
  memory.parameters = shard_bytes(plan);
  memory.gradients = gradient_shards(plan);
  memory.optimizer = optimizer.tensors * most_owned(plan);
  memory.unsharded_in_forward = peak_unsharded_bytes(plan, Pass::kForward);
  memory.unsharded_in_backward = peak_unsharded_bytes(plan, Pass::kBackward, gradients_beside(plan));
  memory.forward_peak = memory.parameters + memory.optimizer + memory.unsharded_in_forward;
  memory.backward_peak = memory.at_rest() + memory.unsharded_in_backward;
  return memory;
}

}  // namespace fsdp2
