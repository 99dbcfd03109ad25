// `ignored_modules`: parameters that stay the host's own.
#pragma once
#include <span>
#include <string>

#include "registry/module_tree.hpp"

namespace fsdp2 {

struct TreeWithoutIgnored {
  ModuleTree tree;
  std::vector<std::string> ignored;  // names of the parameters that were left out
};

/// Leaves out parameters that lie in modules whose whole path matches one of the patterns, or below them; a tied one
/// that lies elsewhere, too. Patterns are regular expressions (ECMAScript). Throws Error (kConfig) at the key for one
/// that is none, that no path matches, and where no parameter is left.
/// As accelerate's `fsdp_ignored_modules` and fully_shard's `ignored_params`.
TreeWithoutIgnored without_ignored(const ModuleTree& tree, std::span<const std::string> patterns);

}  // namespace fsdp2
