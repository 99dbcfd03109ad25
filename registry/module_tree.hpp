// A model as plain data: its modules and parameters, without weights. Made from a TorchScript module by plugin/script,
// or by hand in a test. The auto-wrap visitor and the strategies read nothing else of a model.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "registry/code_place.hpp"
#include "registry/dtype.hpp"
#include "registry/error.hpp"

namespace fsdp2 {

/// One path in the tree. An object that is reached by two paths has two entries that share `object`.
struct TreeModule {
  std::string path;        // from the root, "" for the root itself
  std::string class_name;  // last part of the TorchScript class, without mangling: "Linear"
  std::optional<size_t> parent;
  size_t object = 0;                     // index of the first entry of the same object (itself for most)
  bool has_forward = false;              // false for containers
  bool called = true;                    // by a method that the root's methods reach, as far as is known
  std::optional<CodePlace> frozen = {};  // by torch.jit.freeze: its parameters are constants of its code
};

/// One parameter tensor; a tied one has several names.
struct TreeParameter {
  std::vector<std::string> names;  // full names, in tree order; the first one is *the* name
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  bool trainable = true;
  std::vector<size_t> holders;  // modules of which it is an attribute, one entry a name
  std::vector<size_t> readers;  // modules whose methods read it, holders that read it themselves included
};

/// Modules in pre-order: the root is entry 0, a parent comes before its children.
struct ModuleTree {
  std::vector<TreeModule> modules;
  std::vector<TreeParameter> parameters;
};

/// What is wrong with a module that is frozen, and where.
Error frozen_error(const TreeModule& module);

/// What is wrong with a parameter without dimensions.
Error no_dimensions_error(const ModuleTree& tree, const TreeParameter& parameter);

}  // namespace fsdp2
