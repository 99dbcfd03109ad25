// Modules that a method runs inside torch.jit.fork.
#pragma once
#include <ATen/core/class_type.h>

#include <string>
#include <vector>

namespace fsdp2 {

/// Paths below self, "" for self itself, of modules whose methods run inside a fork that a method of the class starts,
/// directly or through methods of modules on the way. What hides behind an interface is not found.
std::vector<std::string> forked_modules(const c10::ClassType& type);

}  // namespace fsdp2
