#include "adapters/config.hpp"
#include "helpers.hpp"
#include "registry/mesh.hpp"

namespace fsdp2 {
namespace {

using test::text_of;

Mesh mesh(const std::string& body, int64_t world, std::optional<int64_t> node = {}) {
  return mesh_of(load_config_text("[fsdp]\n" + body, "t.toml"), world, node);
}

std::string refusal(const std::string& body, int64_t world, std::optional<int64_t> node = {}) {
  return text_of([&] { mesh(body, world, node); });
}

TEST(Mesh, OneRowUnlessAskedFor) {
  EXPECT_EQ(mesh("", 4), (Mesh{1, 4}));
  EXPECT_EQ(mesh("mesh.shard = 4", 4), (Mesh{1, 4}));
  EXPECT_EQ(mesh("mesh.shard = -1", 4, 2), (Mesh{1, 4}));
  EXPECT_EQ(mesh("strategy = 'no_shard'", 4), (Mesh{1, 4}));
}

TEST(Mesh, WhatIsNotGivenIsTheRest) {
  EXPECT_EQ(mesh("mesh.replicate = 2", 8), (Mesh{2, 4}));
  EXPECT_EQ(mesh("mesh.replicate = -1\nmesh.shard = 2", 8), (Mesh{4, 2}));
  EXPECT_EQ(mesh("mesh.shard = 2", 8), (Mesh{4, 2}));
  EXPECT_EQ(mesh("mesh.replicate = 8\nmesh.shard = 1", 8), (Mesh{8, 1}));
  EXPECT_EQ(mesh("mesh.replicate = 1\nmesh.shard = 8", 8), (Mesh{1, 8}));
}

TEST(Mesh, HybridShardsInsideANode) {
  EXPECT_EQ(mesh("strategy = 'hybrid_shard'", 16, 8), (Mesh{2, 8}));
  EXPECT_EQ(mesh("strategy = 'hybrid_shard_zero2'", 4, 4), (Mesh{1, 4}));
  EXPECT_EQ(mesh("strategy = 'hybrid_shard'\nmesh.shard = 4", 16, 8), (Mesh{4, 4}));
  EXPECT_EQ(refusal("strategy = 'hybrid_shard'", 16),
            "t.toml:2:12: `strategy = \"hybrid_shard\"` shards inside a node, and how many ranks a node has is not "
            "known here; set `mesh.shard` to it");
  EXPECT_EQ(refusal("strategy = 'hybrid_shard'", 6, 4),
            "t.toml:2:12: `strategy = \"hybrid_shard\"` shards inside a node: 6 ranks do not divide into nodes of 4; "
            "set `mesh.shard`");
}

TEST(Mesh, OneThatDoesNotHaveTheRanksIsNamed) {
  EXPECT_EQ(refusal("mesh.replicate = 3\nmesh.shard = 6148914691236517208", 8).find("t.toml:2:18: a mesh of 3 x 6148"),
            0U)
      << refusal("mesh.replicate = 3\nmesh.shard = 6148914691236517208", 8);
  EXPECT_EQ(refusal("mesh.replicate = 3", 8),
            "t.toml:2:18: `mesh.replicate = 3` does not divide the 8 ranks there are");
  EXPECT_EQ(refusal("mesh.shard = 3", 8), "t.toml:2:14: `mesh.shard = 3` does not divide the 8 ranks there are");
  EXPECT_EQ(refusal("mesh.replicate = 2\nmesh.shard = 2", 8),
            "t.toml:2:18: a mesh of 2 x 2 (replicate x shard) does not have the 8 ranks there are");
}

}  // namespace
}  // namespace fsdp2
