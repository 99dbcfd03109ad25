// A module tree with the numbers and marks that a person wants to see beside each module.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plugin/cli/model_facts.hpp"
#include "registry/dtype.hpp"

namespace fsdp2::cli {

/// A parameter under one of its names.
struct NamedParameter {
  size_t parameter = 0;  // index into ModuleTree::parameters
  std::string name;      // full
};

struct ModuleSummary {
  std::vector<NamedParameter> own;
  std::vector<size_t> children;
  int64_t own_elements = 0;
  int64_t elements = 0;            // at or below it, a tied one counted once; bytes likewise
  int64_t trainable_elements = 0;  // of those
  int64_t bytes = 0;
  int64_t buffer_bytes = 0;
  std::set<DType> dtypes;
};

/// One a tree module.
std::vector<ModuleSummary> summarize(const ModelFacts& facts);

/// The last part of a path: "0" of "layers.0".
std::string last_name(const std::string& path);

/// The other names of a tied parameter, without those under which the same module is reached by another path.
std::vector<std::string> tied_names(const ModuleTree& tree, const NamedParameter& named, size_t holder);

/// Modules other than the holder whose methods read it.
std::vector<size_t> other_readers(const ModuleTree& tree, const NamedParameter& named, size_t holder);

}  // namespace fsdp2::cli
