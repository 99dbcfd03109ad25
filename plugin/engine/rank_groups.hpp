// The ranks of a mesh, as the groups in which they communicate.
#pragma once
#include <map>
#include <memory>

#include "plugin/engine/communicator.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// Rank r lies in row r / mesh.shard and column r % mesh.shard. Groups of all ranks are the world itself.
struct RankGroups {
  std::shared_ptr<Communicator> world;
  std::shared_ptr<Communicator> shard;      // a row: between them they hold the parts of a parameter
  std::shared_ptr<Communicator> replicate;  // a column: each holds the same part; null where there is one row
  /// Neighbours in a row, by their number: blocks to which units of the plan reshard after forward.
  std::map<int64_t, std::shared_ptr<Communicator>> blocks = {};
};

/// Splits the world where the mesh has two dimensions or units reshard to blocks. Collective then, if the transport
/// must make groups.
RankGroups groups_of(std::shared_ptr<Communicator> world, const Plan& plan);

}  // namespace fsdp2
