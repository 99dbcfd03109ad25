#include "plugin/wrap/auto_wrap.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "plugin/wrap/policies.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// A unit is known by its object, the index of the first entry of it.
using Object = size_t;

class Visitor {
 public:
  Visitor(const ModuleTree& tree, std::vector<bool> chosen)
      : tree_(tree), chosen_(std::move(chosen)), entries_(tree.modules.size()) {
    for (size_t i = 0; i < tree.modules.size(); ++i) entries_[tree.modules[i].object].push_back(i);
    for (Object object = 0; object < tree.modules.size(); ++object) {
      if (tree.modules[object].object == object && chosen_[object]) parent_of(object);
    }
  }

  void note_uncalled(const std::vector<Object>& objects, std::vector<std::string>& notes) {
    for (const Object object : objects) {
      std::vector<Object> around;
      for (const size_t entry : entries_[object]) add_once(around, unit_around(entry));
      notes.push_back("no method of the model calls `" + tree_.modules[object].path +
                      "`, so it is no unit: its parameters belong to " + title(common(around)));
    }
  }

  /// Gives every parameter to the innermost unit that encloses all modules that hold or read it.
  void assign_parameters(std::vector<std::string>& notes) {
    for (size_t i = 0; i < tree_.parameters.size(); ++i) {
      const TreeParameter& parameter = tree_.parameters[i];
      std::vector<size_t> users = parameter.holders;
      users.insert(users.end(), parameter.readers.begin(), parameter.readers.end());
      std::vector<Object> units;
      for (const size_t user : users) {
        for (const size_t entry : entries_[tree_.modules[user].object]) add_once(units, unit_around(entry));
      }
      const Object owner = units.empty() ? 0 : common(units);
      parameters_[owner].push_back(i);
      if (units.size() > 1) notes.push_back(shared_note(parameter, units, owner));
    }
  }

  /// Children before parents, the root last; units without parameters are left out.
  std::vector<SelectedUnit> result() const {
    std::map<Object, std::vector<Object>> children;
    for (const auto& [unit, parent] : parents_) {
      children[surviving(parent)].push_back(unit);
    }
    std::vector<SelectedUnit> selection;
    emit(0, children, selection);
    return selection;
  }

 private:
  static void add_once(std::vector<Object>& list, Object object) {
    if (std::find(list.begin(), list.end(), object) == list.end()) list.push_back(object);
  }

  /// The innermost unit at or above an entry.
  Object unit_around(size_t entry) const {
    while (!chosen_[entry]) entry = *tree_.modules[entry].parent;
    return tree_.modules[entry].object;
  }

  std::vector<Object> enclosing(Object unit) {
    std::vector<Object> chain{unit};
    while (chain.back() != 0) chain.push_back(parent_of(chain.back()));
    return chain;
  }

  /// The innermost unit that is or encloses each of them.
  Object common(const std::vector<Object>& units) {
    std::vector<Object> chain = enclosing(units.front());
    for (const Object unit : units) {
      const std::vector<Object> other = enclosing(unit);
      std::erase_if(chain, [&](Object object) { return std::find(other.begin(), other.end(), object) == other.end(); });
    }
    return chain.front();
  }

  /// The parent of a unit encloses all its entries. An object never lies inside itself, so the recursion ends.
  Object parent_of(Object unit) {
    if (unit == 0) return 0;
    if (const auto known = parents_.find(unit); known != parents_.end()) return known->second;
    std::vector<Object> around;
    for (const size_t entry : entries_[unit]) add_once(around, unit_around(*tree_.modules[entry].parent));
    const Object parent = common(around);
    parents_[unit] = parent;
    return parent;
  }

  bool survives(Object unit) const { return unit == 0 || parameters_.contains(unit); }

  Object surviving(Object unit) const {
    while (!survives(unit)) unit = parents_.at(unit);
    return unit;
  }

  /// Returns the index of the unit in the selection, or nothing for one that is left out.
  std::optional<size_t> emit(Object unit, const std::map<Object, std::vector<Object>>& children,
                             std::vector<SelectedUnit>& selection) const {
    std::vector<size_t> inner;
    if (const auto found = children.find(unit); found != children.end()) {
      for (const Object child : found->second) {
        if (const auto index = emit(child, children, selection)) inner.push_back(*index);
      }
    }
    if (!survives(unit)) return std::nullopt;
    SelectedUnit selected;
    selected.module = unit;
    if (const auto found = parameters_.find(unit); found != parameters_.end()) selected.parameters = found->second;
    selection.push_back(std::move(selected));
    for (const size_t child : inner) selection[child].parent = selection.size() - 1;
    return selection.size() - 1;
  }

  std::string title(Object unit) const { return unit == 0 ? "the root" : "`" + tree_.modules[unit].path + "`"; }

  std::string shared_note(const TreeParameter& parameter, const std::vector<Object>& units, Object owner) const {
    std::string text = "`" + parameter.names.front() + "`";
    for (size_t i = 1; i < parameter.names.size(); ++i) {
      text += (i == 1 ? " (also `" : ", `") + parameter.names[i] + "`" + (i + 1 == parameter.names.size() ? ")" : "");
    }
    text += " is used in ";
    for (size_t i = 0; i < units.size(); ++i) text += (i == 0 ? "" : ", ") + title(units[i]);
    return text + " and belongs to " + title(owner) + ", the innermost unit that encloses them";
  }

  const ModuleTree& tree_;
  std::vector<bool> chosen_;
  std::vector<std::vector<size_t>> entries_;  // of each object, ascending
  std::map<Object, Object> parents_;
  std::map<Object, std::vector<size_t>> parameters_;
};

/// Lets go of chosen modules that nothing calls. Returns those with parameters that lie in no other of them.
std::vector<Object> let_go_of_uncalled(const ModuleTree& tree, std::vector<bool>& chosen) {
  const std::vector<int64_t> counts = parameter_counts(tree);
  std::vector<bool> lies_in_one(tree.modules.size(), false);
  std::vector<Object> outermost;
  for (size_t i = 1; i < tree.modules.size(); ++i) {
    const TreeModule& module = tree.modules[i];
    const bool inside = lies_in_one[*module.parent];
    lies_in_one[i] = inside || (chosen[i] && !module.called);
    if (!chosen[i] || module.called) continue;
    chosen[i] = false;
    if (!inside && module.object == i && counts[i] > 0) outermost.push_back(i);
  }
  return outermost;
}

void note_frozen(const ModuleTree& tree, std::vector<std::string>& notes) {
  for (const TreeModule& module : tree.modules) {
    if (module.frozen) notes.emplace_back(frozen_error(module).what());
  }
}

}  // namespace

std::vector<SelectedUnit> select_units(const ModuleTree& tree, const WrapOptions& wrap,
                                       std::vector<std::string>& notes) {
  return units_of_chosen(tree, choose_modules(tree, wrap), notes);
}

std::vector<SelectedUnit> units_of_chosen(const ModuleTree& tree, std::vector<bool> chosen,
                                          std::vector<std::string>& notes) {
  const std::vector<Object> uncalled = let_go_of_uncalled(tree, chosen);
  Visitor visitor(tree, std::move(chosen));
  visitor.note_uncalled(uncalled, notes);
  visitor.assign_parameters(notes);
  note_frozen(tree, notes);
  return visitor.result();
}

}  // namespace fsdp2
