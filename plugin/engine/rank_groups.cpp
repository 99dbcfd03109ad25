#include "plugin/engine/rank_groups.hpp"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// `count` ranks from `first` on, `step` apart.
std::vector<int64_t> every(int64_t step, int64_t first, int64_t count) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

RankGroups rows_and_columns(const std::shared_ptr<Communicator>& world, const Mesh& mesh) {
  if (mesh.replicate * mesh.shard != world->size()) {
    throw Error(ErrorCode::kInternal, "a plan for " + std::to_string(mesh.replicate * mesh.shard) + " ranks, and " +
                                          std::to_string(world->size()) + " are here");
  }
  if (mesh.replicate == 1) return {world, world, nullptr};
  const int64_t row = world->rank() / mesh.shard;
  const int64_t column = world->rank() % mesh.shard;
  if (mesh.shard == 1) return {world, nullptr, world};
  RankGroups groups{world, world->split(every(1, row * mesh.shard, mesh.shard)), nullptr};
  groups.replicate = world->split(every(mesh.shard, column, mesh.replicate));
  return groups;
}

}  // namespace

RankGroups groups_of(std::shared_ptr<Communicator> world, const Plan& plan) {
  RankGroups groups = rows_and_columns(world, plan.mesh);
  std::set<int64_t> sizes;
  for (const PlannedUnit& unit : plan.units) {
    if (unit.reshard_to > 0) sizes.insert(unit.reshard_to);
  }
  for (const int64_t size : sizes) groups.blocks[size] = world->split(every(1, world->rank() / size * size, size));
  return groups;
}

}  // namespace fsdp2
