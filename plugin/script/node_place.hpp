// Which line of Python a node of a graph comes from.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include "registry/code_place.hpp"

namespace fsdp2 {

/// In the source that was scripted or traced, where the module still knows it, else in its own code.
CodePlace place_of(const torch::jit::Node& node);

}  // namespace fsdp2
