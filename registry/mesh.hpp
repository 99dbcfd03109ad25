// The mesh that a configuration asks for, on the ranks there are.
#pragma once
#include <cstdint>
#include <optional>

#include "registry/config.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// 1 x all ranks unless the configuration says otherwise; -1 is the rest. The hybrid strategies shard inside a node and
/// replicate over nodes unless a mesh is given: `node` is the number of ranks on a node, where that is known. Throws
/// Error, at the key, where the mesh is not as large as the world, or the node is needed and not known.
Mesh mesh_of(const Config& config, int64_t world, std::optional<int64_t> node = {});

/// Whether the mesh has exactly `world` ranks. For any numbers: their product need not fit.
bool covers(const Mesh& mesh, int64_t world);

}  // namespace fsdp2
