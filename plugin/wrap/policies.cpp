#include "plugin/wrap/policies.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "registry/error.hpp"
#include "registry/given.hpp"
#include "registry/nearest_name.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {
namespace {

/// Classes there are, each with the number of its objects.
std::map<std::string, size_t> classes_of(const ModuleTree& tree) {
  std::map<std::string, size_t> counts;
  for (size_t i = 0; i < tree.modules.size(); ++i) {
    if (tree.modules[i].object == i) ++counts[tree.modules[i].class_name];
  }
  return counts;
}

void choose_classes(const ModuleTree& tree, const WrapOptions& wrap, std::vector<bool>& chosen) {
  const std::map<std::string, size_t> classes = classes_of(tree);
  for (const std::string& wanted : wrap.layer_classes) {
    bool exists = false;
    bool runs = false;
    for (size_t i = 0; i < tree.modules.size(); ++i) {
      const TreeModule& module = tree.modules[i];
      if (module.class_name != wanted) continue;
      exists = true;
      if (module.frozen) throw frozen_error(module);
      runs = runs || module.has_forward;
      if (module.has_forward) chosen[i] = true;
    }
    if (runs) continue;
    if (exists) {
      throw error_at({}, "wrap.layer_classes",
                     "the modules of class `" + wanted + "` are containers without a forward and cannot be units");
    }
    std::string list;
    std::vector<std::string> names;
    for (const auto& [name, count] : classes) {
      list += (list.empty() ? "" : ", ") + name + " (" + std::to_string(count) + ")";
      names.push_back(name);
    }
    throw error_at({}, "wrap.layer_classes", "no module has the class `" + wanted + "`; the model has " + list,
                   nearest_name(wanted, names));
  }
}

void choose_paths(const ModuleTree& tree, const WrapOptions& wrap, std::vector<bool>& chosen) {
  for (const std::string& pattern : wrap.modules) {
    std::vector<std::string> paths;
    std::string container;
    bool runs = false;
    for (size_t i = 1; i < tree.modules.size(); ++i) {
      const TreeModule& module = tree.modules[i];
      paths.push_back(module.path);
      if (!matches_path(pattern, module.path)) continue;
      if (module.frozen) throw frozen_error(module);
      if (!module.has_forward) container = module.path;
      if (!module.has_forward) continue;
      chosen[i] = true;
      runs = true;
    }
    // A pattern may pass over containers, but one that is named, or nothing else, is a mistake.
    if (!container.empty() && (!runs || pattern.find('*') == std::string::npos)) {
      ErrorDetails details;
      details.key = "wrap.modules";
      details.module = container;
      throw Error(ErrorCode::kConfig,
                  "`" + container +
                      "` is a container without a forward and cannot be a unit; name what it holds, for example `" +
                      container + ".*`",
                  std::move(details));
    }
    if (!runs) {
      throw error_at({}, "wrap.modules",
                     "no module path matches `" + pattern + "` (`*` stands for any text without a dot)",
                     nearest_name(pattern, paths));
    }
  }
}

void choose_large(const ModuleTree& tree, const WrapOptions& wrap, std::vector<bool>& chosen) {
  const int64_t least = wrap.min_num_params.value_or(0);
  if (least == 0) return;  // as Accelerate has it: the root only
  const std::vector<int64_t> counts = parameter_counts(tree);
  for (size_t i = 0; i < tree.modules.size(); ++i) {
    if (tree.modules[i].has_forward && counts[i] > least) chosen[i] = true;
  }
}

}  // namespace

bool matches_path(std::string_view pattern, std::string_view path) {
  // Greedy match with one point to come back to, the last star.
  size_t p = 0;
  size_t s = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (s < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = s;
    } else if (p < pattern.size() && pattern[p] == path[s]) {
      ++p;
      ++s;
    } else if (star != std::string_view::npos && path[resume] != '.') {
      p = star + 1;
      s = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<int64_t> parameter_counts(const ModuleTree& tree) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<int64_t> counts(tree.modules.size(), 0);
  std::vector<size_t> counted(tree.modules.size(), kNone);  // the last parameter added
  for (size_t i = 0; i < tree.parameters.size(); ++i) {
    const int64_t count = numel(tree.parameters[i].shape);
    for (const size_t holder : tree.parameters[i].holders) {
      for (std::optional<size_t> at = holder; at && counted[*at] != i; at = tree.modules[*at].parent) {
        counted[*at] = i;
        counts[*at] += count;
      }
    }
  }
  return counts;
}

std::vector<bool> choose_modules(const ModuleTree& tree, const WrapOptions& wrap) {
  if (tree.modules.empty()) throw Error(ErrorCode::kInvalidArgument, "the model has no modules, not even a root");
  std::vector<bool> chosen(tree.modules.size(), false);
  switch (wrap.policy) {
    case WrapPolicy::kTransformer:
      choose_classes(tree, wrap, chosen);
      break;
    case WrapPolicy::kSize:
      choose_large(tree, wrap, chosen);
      break;
    case WrapPolicy::kModules:
      choose_paths(tree, wrap, chosen);
      break;
    case WrapPolicy::kEvery:
      for (size_t i = 0; i < tree.modules.size(); ++i) chosen[i] = tree.modules[i].has_forward;
      break;
    case WrapPolicy::kNone:
      break;
  }
  chosen[0] = true;
  // One path of an object stands for all of them.
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i]) chosen[tree.modules[i].object] = true;
  }
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = chosen[tree.modules[i].object];
  return chosen;
}

}  // namespace fsdp2
