// A model that is not there yet, or too large to be here: a TOML list of its modules and the shapes of their
// parameters.
#pragma once
#include <string>
#include <string_view>

#include "registry/module_tree.hpp"

namespace fsdp2::cli {

/// From text:
///     dtype = "bfloat16"                     # of all parameters that say nothing else; float32
///     [[module]]
///     path = "layers.{0..79}.mlp"            # {first..last}: one a number
///     class = "MLP"                          # "Module"
///     forward = true                         # false: a container, whose parts run by themselves
///     dtype = "float32"
///     trainable = true
///     parameters = { "up.weight" = [28672, 8192], "down.weight" = [8192, 28672] }
///     tied = { "head.weight" = "embed.weight" }   # the same tensor as another one of the file, by full names
/// A path that is named nowhere but lies on the way to one is a module too: a container, "ModuleList", where its parts
/// are numbers. Throws Error (kConfig) with the place and the nearest key.
ModuleTree read_shapes(std::string_view toml, const std::string& file);

/// The same from a file.
ModuleTree read_shape_file(const std::string& path);

}  // namespace fsdp2::cli
