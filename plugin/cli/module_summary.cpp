#include "plugin/cli/module_summary.hpp"

#include <algorithm>
#include <optional>

#include "registry/plan.hpp"

namespace fsdp2::cli {

std::vector<ModuleSummary> summarize(const ModelFacts& facts) {
  const ModuleTree& tree = facts.tree;
  std::vector<ModuleSummary> summaries(tree.modules.size());
  for (size_t m = 0; m < tree.modules.size(); ++m) {
    if (tree.modules[m].parent) summaries[*tree.modules[m].parent].children.push_back(m);
    // Buffers of a module that is reached by two paths are there once.
    if (tree.modules[m].object != m) continue;
    for (std::optional<size_t> at = m; at; at = tree.modules[*at].parent) {
      summaries[*at].buffer_bytes += facts.buffer_bytes[m];
    }
  }
  std::vector<std::optional<size_t>> counted(tree.modules.size());  // the last parameter that was added
  for (size_t p = 0; p < tree.parameters.size(); ++p) {
    const TreeParameter& parameter = tree.parameters[p];
    const int64_t elements = numel(parameter.shape);
    for (size_t k = 0; k < parameter.holders.size(); ++k) {
      ModuleSummary& holder = summaries[parameter.holders[k]];
      holder.own.push_back({p, parameter.names[k]});
      holder.own_elements += elements;
      for (std::optional<size_t> at = parameter.holders[k]; at && counted[*at] != p; at = tree.modules[*at].parent) {
        counted[*at] = p;
        ModuleSummary& summary = summaries[*at];
        summary.elements += elements;
        summary.trainable_elements += parameter.trainable ? elements : 0;
        summary.bytes += bytes_of(parameter);
        summary.dtypes.insert(parameter.dtype);
      }
    }
  }
  return summaries;
}

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::vector<std::string> tied_names(const ModuleTree& tree, const NamedParameter& named, size_t holder) {
  const TreeParameter& parameter = tree.parameters[named.parameter];
  std::vector<std::string> names;
  for (size_t k = 0; k < parameter.names.size(); ++k) {
    const bool same_place = tree.modules[parameter.holders[k]].object == tree.modules[holder].object &&
                            last_name(parameter.names[k]) == last_name(named.name);
    if (!same_place) names.push_back(parameter.names[k]);
  }
  return names;
}

std::vector<size_t> other_readers(const ModuleTree& tree, const NamedParameter& named, size_t holder) {
  std::vector<size_t> readers;
  for (const size_t reader : tree.parameters[named.parameter].readers) {
    const size_t object = tree.modules[reader].object;
    const auto& holders = tree.parameters[named.parameter].holders;
    const bool holds =
        object == tree.modules[holder].object ||
        std::any_of(holders.begin(), holders.end(), [&](size_t other) { return tree.modules[other].object == object; });
    if (!holds && std::find(readers.begin(), readers.end(), object) == readers.end()) readers.push_back(object);
  }
  return readers;
}

}  // namespace fsdp2::cli
