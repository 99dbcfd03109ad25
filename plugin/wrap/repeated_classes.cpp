#include "plugin/wrap/repeated_classes.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "plugin/wrap/policies.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {
namespace {

/// Elements in modules of each class, each parameter once however deep it lies in them.
std::map<std::string, int64_t> parameters_by_class(const ModuleTree& tree) {
  std::map<std::string, int64_t> sums;
  for (const TreeParameter& parameter : tree.parameters) {
    std::set<std::string_view> classes;
    for (const size_t holder : parameter.holders) {
      for (size_t m = holder; m != 0; m = *tree.modules[m].parent) classes.insert(tree.modules[m].class_name);
    }
    for (const std::string_view name : classes) sums[std::string(name)] += numel(parameter.shape);
  }
  return sums;
}

/// "layer" of "encoder.layer12", nothing for names without a number at their end.
std::string_view without_number(std::string_view path) {
  const size_t last = path.find_last_not_of("0123456789");
  return last + 1 == path.size() ? std::string_view{} : path.substr(0, last + 1);
}

bool ends_in_number(std::string_view path) {
  return !path.empty() && path.back() >= '0' && path.back() <= '9';
}

bool has_numbered(const ModuleTree& tree, const std::vector<size_t>& modules) {
  std::set<std::pair<size_t, std::string_view>> seen;
  return std::any_of(modules.begin(), modules.end(), [&](size_t m) {
    const TreeModule& module = tree.modules[m];
    return ends_in_number(module.path) && !seen.emplace(*module.parent, without_number(module.path)).second;
  });
}

std::string why_no_units(const ModuleTree& tree, const RepeatedClass& repeated, std::span<const std::string> unfit) {
  size_t with_forward = 0;
  size_t called = 0;
  for (const size_t m : repeated.modules) {
    if (!unfit[m].empty()) return unfit[m];
    with_forward += tree.modules[m].has_forward ? 1 : 0;
    called += tree.modules[m].has_forward && tree.modules[m].called ? 1 : 0;
  }
  if (with_forward == 0) return "containers without a forward";
  if (called == 0) return "no method calls them";
  return called == 1 ? "only one of them is called" : "";
}

}  // namespace

std::vector<RepeatedClass> repeated_classes(const ModuleTree& tree, std::span<const std::string> unfit) {
  const std::vector<int64_t> counts = parameter_counts(tree);
  std::vector<int64_t> own(tree.modules.size(), 0);
  for (const TreeParameter& parameter : tree.parameters) {
    for (const size_t holder : parameter.holders) own[holder] += numel(parameter.shape);
  }
  std::map<std::string, RepeatedClass> by_name;
  std::set<std::string> frozen;  // a frozen one has no parameters, and stands against its class all the same
  for (size_t m = 1; m < tree.modules.size(); ++m) {
    const TreeModule& module = tree.modules[m];
    if (module.frozen) frozen.insert(module.class_name);
    if (module.object != m || counts[m] == 0) continue;
    RepeatedClass& repeated = by_name[module.class_name];
    repeated.name = module.class_name;
    repeated.least = repeated.modules.empty() ? counts[m] : std::min(repeated.least, counts[m]);
    repeated.most = std::max(repeated.most, counts[m]);
    repeated.holds_modules = repeated.holds_modules || own[m] < counts[m];
    repeated.modules.push_back(m);
  }
  const std::map<std::string, int64_t> sums = parameters_by_class(tree);
  std::vector<RepeatedClass> result;
  for (auto& [name, repeated] : by_name) {
    if (repeated.modules.size() < 2) continue;
    repeated.parameters = sums.at(name);
    repeated.is_numbered = has_numbered(tree, repeated.modules);
    repeated.why_not = frozen.contains(name) ? "one of them is frozen" : why_no_units(tree, repeated, unfit);
    result.push_back(std::move(repeated));
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.parameters > b.parameters; });
  return result;
}

}  // namespace fsdp2
