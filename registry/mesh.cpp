#include "registry/mesh.hpp"

#include <string>

#include "registry/error.hpp"
#include "registry/options.hpp"

namespace fsdp2 {
namespace {

constexpr int64_t kRest = -1;

bool is_hybrid(const Fsdp2Options& options) {
  return strategy_base(options.strategy).starts_with("hybrid_");
}

/// Every node a row.
Mesh mesh_of_nodes(const Config& config, int64_t world, std::optional<int64_t> node) {
  const std::string strategy = "`strategy = \"" + config.options.strategy + "\"`";
  const Source source = source_of(config, "strategy");
  if (!node) {
    throw error_at(source, "mesh.shard",
                   strategy + " shards inside a node, and how many ranks a node has is not known here; set " +
                       "`mesh.shard` to it");
  }
  if (world % *node != 0) {
    throw error_at(source, "mesh.shard",
                   strategy + " shards inside a node: " + std::to_string(world) + " ranks do not divide into " +
                       "nodes of " + std::to_string(*node) + "; set `mesh.shard`");
  }
  return {world / *node, *node};
}

}  // namespace

bool covers(const Mesh& mesh, int64_t world) {
  if (mesh.replicate < 1 || mesh.shard < 1 || mesh.replicate > world || mesh.shard > world) return false;
  return mesh.replicate * mesh.shard == world;
}

Mesh mesh_of(const Config& config, int64_t world, std::optional<int64_t> node) {
  const MeshOptions& asked = config.options.mesh;
  if (is_hybrid(config.options) && !asked.replicate && !asked.shard) return mesh_of_nodes(config, world, node);

  // Of a mesh that is given in part, the other part is the rest.
  Mesh mesh{asked.replicate.value_or(asked.shard.value_or(kRest) == kRest ? 1 : kRest), asked.shard.value_or(kRest)};
  const int64_t known = mesh.replicate == kRest ? mesh.shard : mesh.replicate;
  const bool has_rest = mesh.replicate == kRest || mesh.shard == kRest;
  if (has_rest ? world % known != 0 : !covers(mesh, world)) {
    const std::string key = mesh.replicate == kRest || !asked.replicate ? "mesh.shard" : "mesh.replicate";
    const std::string text = has_rest ? "`" + key + " = " + std::to_string(known) + "` does not divide the "
                                      : "a mesh of " + std::to_string(mesh.replicate) + " x " +
                                            std::to_string(mesh.shard) + " (replicate x shard) does not have the ";
    throw error_at(source_of(config, key), key, text + std::to_string(world) + " ranks there are");
  }
  if (mesh.replicate == kRest) mesh.replicate = world / mesh.shard;
  if (mesh.shard == kRest) mesh.shard = world / mesh.replicate;
  return mesh;
}

}  // namespace fsdp2
