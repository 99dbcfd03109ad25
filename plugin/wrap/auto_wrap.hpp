// The auto-wrap visitor: from a model and a policy to its units, bottom-up.
#pragma once
#include <string>
#include <vector>

#include "registry/module_tree.hpp"
#include "registry/options.hpp"
#include "registry/selection.hpp"

namespace fsdp2 {

/// Chooses the units: children before parents, the root last and always a unit. Every parameter belongs to exactly one:
/// the innermost unit that encloses all modules that hold or read it. Modules that are one object are one unit. A
/// module that nothing calls is none, and a unit left without parameters is dropped, except the root. Remarks for a
/// person are added to `notes`.
///
/// Policies:
///   transformer  modules whose class is one of `layer_classes`
///   size         modules with more than `min_num_params` parameters in all; 0 wraps the root only
///   modules      modules whose path matches one of `modules`; `*` stands for any text without a dot
///   every        each module with a forward and parameters
///   none         the root only
std::vector<SelectedUnit> select_units(const ModuleTree& tree, const WrapOptions& wrap,
                                       std::vector<std::string>& notes);

/// The same for modules that were chosen in another way: of each entry of the tree whether its object was.
std::vector<SelectedUnit> units_of_chosen(const ModuleTree& tree, std::vector<bool> chosen,
                                          std::vector<std::string>& notes);

}  // namespace fsdp2
