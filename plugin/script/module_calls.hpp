// Which modules of a tree its methods call, and which of them inside torch.jit.fork.
#pragma once
#include <ATen/core/ivalue.h>

#include <optional>
#include <span>
#include <vector>

#include "registry/module_tree.hpp"

namespace fsdp2 {

/// One element a tree module; all entries of an object have the same.
struct ModuleCalls {
  std::vector<bool> called;
  std::vector<std::optional<CodePlace>> forks;  // the fork inside of which it is called, if any
};

/// Follows calls through the graphs from the methods of the root (of its parts where the root has none), which a host
/// may call. A module that is handed on in another way than by attributes (an element of a list by a computed index, an
/// argument) may be called there, and so may everything in it.
ModuleCalls module_calls(const ModuleTree& tree, std::span<const c10::intrusive_ptr<c10::ivalue::Object>> objects);

}  // namespace fsdp2
