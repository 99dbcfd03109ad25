#include "plugin/plan_binding.hpp"

#include <algorithm>
#include <unordered_map>

#include "plugin/engine/unit_table.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// What the methods of a unit and of everything below it write.
std::vector<Slot> written_in(const Plan& plan, const BoundTree& bound, size_t unit) {
  const std::string& path = plan.units[unit].path;
  std::vector<Slot> slots;
  for (size_t m = 0; m < bound.tree.modules.size(); ++m) {
    const std::string& inner = bound.tree.modules[m].path;
    if (!path.empty() && inner != path && !inner.starts_with(path + ".")) continue;
    slots.insert(slots.end(), bound.written_attributes[m].begin(), bound.written_attributes[m].end());
  }
  return slots;
}

void refuse_forked(const BoundTree& bound, const Plan& plan) {
  for (const PlannedUnit& unit : plan.units) {
    const auto module = std::find_if(bound.tree.modules.begin(), bound.tree.modules.end(),
                                     [&](const TreeModule& m) { return m.path == unit.path; });
    const auto& fork = bound.forks[module - bound.tree.modules.begin()];
    if (!fork || unit.path.empty()) continue;
    throw Error(ErrorCode::kUnsupported,
                "unit `" + unit.path + "` runs inside torch.jit.fork" + in_brackets(*fork) +
                    ", where ranks could gather in different orders; make the module that forks the unit, or leave " +
                    "class `" + unit.class_name + "` out",
                {.file = fork->file, .line = fork->line, .module = unit.path});
  }
}

}  // namespace

Binding bind(const Plan& plan, const BoundTree& bound) {
  refuse_forked(bound, plan);
  std::unordered_map<std::string, size_t> modules;
  std::unordered_map<std::string, size_t> parameters;
  for (size_t m = 0; m < bound.tree.modules.size(); ++m) modules.emplace(bound.tree.modules[m].path, m);
  for (size_t p = 0; p < bound.tree.parameters.size(); ++p) parameters.emplace(bound.tree.parameters[p].names[0], p);
  Binding binding;
  size_t bound_parameters = 0;
  for (const PlannedUnit& unit : plan.units) {
    binding.unit_objects.push_back(bound.objects[modules.at(unit.path)]);
    auto& slots = binding.unit_slots.emplace_back();
    for (const PlannedParameter& parameter : unit.parameters) {
      slots.push_back(bound.slots[parameters.at(parameter.name)]);
      ++bound_parameters;
    }
  }
  std::unordered_map<size_t, size_t> units;  // by the module that is one
  for (size_t u = 0; u < plan.units.size(); ++u) units.emplace(modules.at(plan.units[u].path), u);
  for (size_t m = 0; m < bound.tree.modules.size(); ++m) {
    const TreeModule& module = bound.tree.modules[m];
    const auto unit = units.find(module.object);
    binding.unit_of_module.push_back(unit != units.end() ? unit->second : binding.unit_of_module[*module.parent]);
  }
  TORCH_INTERNAL_ASSERT(bound_parameters + plan.ignored_parameters.size() == bound.tree.parameters.size(),
                        "the plan does not cover every parameter once");
  for (size_t u = 0; u < plan.units.size(); ++u) binding.written_attributes.push_back(written_in(plan, bound, u));
  return binding;
}

void refuse_sharded(const BoundTree& bound) {
  for (size_t m = 0; m < bound.objects.size(); ++m) {
    if (find_unit(bound.objects[m].get()) == nullptr) continue;
    const std::string& path = bound.tree.modules[m].path;
    throw Error(ErrorCode::kFailedPrecondition,
                (path.empty() ? std::string("the module") : "submodule `" + path + "`") +
                    " is already sharded; detach its engine first",
                {.module = path});
  }
}

}  // namespace fsdp2
