#include "plugin/wrap/ignored.hpp"

#include <algorithm>
#include <regex>
#include <vector>

#include "registry/given.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

constexpr const char* kKey = "ignored_modules";

/// Of each object whether one of its paths matches.
std::vector<bool> matching_objects(const ModuleTree& tree, const std::string& pattern) {
  std::vector<bool> matching(tree.modules.size(), false);
  bool any = false;
  try {
    const std::regex expression(pattern);
    for (const TreeModule& module : tree.modules) {
      if (!std::regex_match(module.path, expression)) continue;
      matching[module.object] = true;
      any = true;
    }
  } catch (const std::regex_error& error) {
    throw error_at({}, kKey, "`" + pattern + "` is not a regular expression: " + error.what());
  }
  if (any) return matching;
  std::vector<std::string> paths;
  for (const TreeModule& module : tree.modules) paths.push_back(module.path);
  throw error_at({}, kKey, "the whole of no module path matches `" + pattern + "`", nearest_name(pattern, paths));
}

}  // namespace

TreeWithoutIgnored without_ignored(const ModuleTree& tree, std::span<const std::string> patterns) {
  TreeWithoutIgnored result{tree, {}};
  if (patterns.empty()) return result;
  std::vector<bool> ignored(tree.modules.size(), false);
  for (const std::string& pattern : patterns) {
    const std::vector<bool> matching = matching_objects(tree, pattern);
    for (size_t m = 0; m < ignored.size(); ++m) ignored[m] = ignored[m] || matching[m];
  }
  for (size_t m = 0; m < tree.modules.size(); ++m) {
    const TreeModule& module = tree.modules[m];
    if (module.parent && ignored[tree.modules[*module.parent].object]) ignored[module.object] = true;
  }
  std::erase_if(result.tree.parameters, [&](const TreeParameter& parameter) {
    const bool leaves = std::any_of(parameter.holders.begin(), parameter.holders.end(),
                                    [&](size_t holder) { return ignored[tree.modules[holder].object]; });
    if (leaves) result.ignored.push_back(parameter.names.front());
    return leaves;
  });
  if (result.tree.parameters.empty()) throw error_at({}, kKey, "no parameter is left to shard");
  return result;
}

}  // namespace fsdp2
