#include "plugin/wrap/planner.hpp"

#include <string>
#include <utility>
#include <vector>

#include "plugin/wrap/auto_wrap.hpp"
#include "plugin/wrap/extension_plan.hpp"
#include "plugin/wrap/ignored.hpp"
#include "registry/error.hpp"
#include "registry/mesh.hpp"
#include "registry/registry.hpp"

namespace fsdp2 {
namespace {

/// The visitor, and a strategy from outside, know the key at fault but not where it was written.
Error with_place(const Error& error, const Config& config) {
  const auto found = config.sources.find(error.details().key);
  if (found == config.sources.end()) return error;
  const Source& source = found->second;
  if (std::string_view(error.what()).starts_with(place(source))) return error;
  ErrorDetails details = error.details();
  details.file = source.file;
  if (source.line > 0) {
    details.line = source.line;
    details.column = source.column;
  }
  return Error(error.code(), place(source) + error.what(), std::move(details));
}

Plan plan_for(const ModuleTree& tree, const Config& config, const Mesh& mesh) {
  const std::string name = strategy_full_name(config.options);
  if (const ExtensionStrategy* strategy = config.extensions.find_strategy(name)) {
    return plan_by(*strategy, tree, config, mesh);
  }
  std::vector<std::string> notes;
  const std::vector<SelectedUnit> units = select_units(tree, config.options.wrap, notes);
  Plan plan = find_strategy(name)->make(tree, units, mesh, config.options);  // is there: it was checked
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  return plan;
}

}  // namespace

Plan make_plan(const ModuleTree& tree, const Config& config, int64_t world, std::optional<int64_t> node) {
  check_supported(config, world);
  try {
    TreeWithoutIgnored kept = without_ignored(tree, config.options.ignored_modules);
    Plan plan = plan_for(kept.tree, config, mesh_of(config, world, node));
    plan.ignored_parameters = std::move(kept.ignored);
    return plan;
  } catch (const Error& error) {
    throw with_place(error, config);
  }
}

Plan make_plan(const ModuleTree& tree, const Fsdp2Options& options, int64_t world) {
  Config config;
  config.options = options;
  return make_plan(tree, config, world);
}

}  // namespace fsdp2
