// The wrap policies: which modules of a model become units, before parameters are given to them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "registry/module_tree.hpp"
#include "registry/options.hpp"

namespace fsdp2 {

/// For each entry of the tree whether its object was chosen. The root always is; modules without a forward never are.
/// Throws Error where the options name what is not there, a container, or a frozen module.
std::vector<bool> choose_modules(const ModuleTree& tree, const WrapOptions& wrap);

/// Whether a path matches a pattern; `*` stands for any text without a dot.
bool matches_path(std::string_view pattern, std::string_view path);

/// Elements of all parameters at or below each entry, a tied one counted once.
std::vector<int64_t> parameter_counts(const ModuleTree& tree);

}  // namespace fsdp2
