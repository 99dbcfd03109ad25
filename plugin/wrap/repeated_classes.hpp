// Classes that occur several times in a model: what may be wrapped.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "registry/module_tree.hpp"

namespace fsdp2 {

struct RepeatedClass {
  std::string name;
  std::vector<size_t> modules;  // entries of the tree, one an object; with parameters in them or below
  int64_t least = 0;            // elements of the smallest and of the largest one, with all below
  int64_t most = 0;
  int64_t parameters = 0;      // elements in all of them, each once
  bool holds_modules = false;  // whether some of the parameters lie in modules below
  bool is_numbered = false;    // several of them lie side by side under names that end in numbers: layers.0, layers.1
  std::string why_not;         // they cannot be units; empty: candidates
};

/// Those of two modules with parameters or more, without the root, by the share of the parameters that they hold.
/// `unfit`: one text a tree module, why it cannot be a unit, empty where it can.
std::vector<RepeatedClass> repeated_classes(const ModuleTree& tree, std::span<const std::string> unfit);

}  // namespace fsdp2
