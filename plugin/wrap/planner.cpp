#include "plugin/wrap/planner.hpp"

#include <string>
#include <utility>
#include <vector>

#include "plugin/wrap/auto_wrap.hpp"
#include "registry/error.hpp"
#include "registry/mesh.hpp"
#include "registry/registry.hpp"

namespace fsdp2 {
namespace {

/// The visitor knows the key at fault but not where it was written.
Error with_place(const Error& error, const Config& config) {
  const auto found = config.sources.find(error.details().key);
  if (found == config.sources.end()) return error;
  const Source& source = found->second;
  ErrorDetails details = error.details();
  details.file = source.file;
  if (source.line > 0) {
    details.line = source.line;
    details.column = source.column;
  }
  return Error(error.code(), place(source) + error.what(), std::move(details));
}

std::vector<SelectedUnit> select(const ModuleTree& tree, const Config& config, std::vector<std::string>& notes) {
  try {
    return select_units(tree, config.options.wrap, notes);
  } catch (const Error& error) {
    throw with_place(error, config);
  }
}

}  // namespace

Plan make_plan(const ModuleTree& tree, const Config& config, int64_t world, std::optional<int64_t> node) {
  check_supported(config, world);
  std::vector<std::string> notes;
  const std::vector<SelectedUnit> units = select(tree, config, notes);
  const Strategy* strategy = find_strategy(strategy_full_name(config.options));  // is there: it was checked
  Plan plan = strategy->make(tree, units, mesh_of(config, world, node), config.options);
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  return plan;
}

Plan make_plan(const ModuleTree& tree, const Fsdp2Options& options, int64_t world) {
  Config config;
  config.options = options;
  return make_plan(tree, config, world);
}

}  // namespace fsdp2
