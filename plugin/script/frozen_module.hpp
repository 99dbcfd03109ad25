// Modules whose parameters torch.jit.freeze has turned into constants.
#pragma once
#include <ATen/core/class_type.h>

#include <optional>

#include "registry/module_tree.hpp"

namespace fsdp2 {

/// Where a frozen module's code uses the first of its constants; nothing for a module that is not frozen.
std::optional<CodePlace> frozen_at(const c10::ClassType& type);

}  // namespace fsdp2
