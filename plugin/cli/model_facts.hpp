// A TorchScript file as plain data, without reading its weights.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "registry/error.hpp"
#include "registry/module_tree.hpp"

namespace fsdp2::cli {

struct ModelFacts {
  ModuleTree tree;
  std::vector<int64_t> buffer_bytes;  // one a tree module: of its own buffers
  std::vector<std::string> unfit;     // one a tree module: why it cannot be a unit, empty where it can
  std::vector<Error> refusals;        // what stands against sharding it; empty: it can be sharded
  std::vector<std::string> remarks;   // what a person should know where it can
};

/// Throws Error where the file cannot be read; what stands against sharding is in the result.
ModelFacts read_model_facts(const std::string& path);

}  // namespace fsdp2::cli
