// A TorchScript file as plain data, without reading its weights.
#pragma once
#include <string>

#include "registry/module_tree.hpp"

namespace fsdp2::cli {

/// Throws Error: kNotFound where there is no such file, kInvalidArgument where it is no TorchScript file, kUnsupported
/// where its module cannot be sharded.
ModuleTree read_model_file(const std::string& path);

}  // namespace fsdp2::cli
