#include "plugin/wrap/suggested_wrap.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "plugin/wrap/planner.hpp"
#include "plugin/wrap/policies.hpp"
#include "registry/text_table.hpp"

namespace fsdp2 {
namespace {

constexpr double kShareOfAll = 0.25;     // that classes must hold together to be worth it
constexpr double kShareOfLayers = 0.1;   // layers in a row are worth it sooner, beside large tables
constexpr double kShareOfOne = 0.05;     // that each of them must hold
constexpr double kLargestPair = 1 / 3.;  // of all, that one of two halves may have before smaller parts are looked at
constexpr double kGain = 0.9;            // what is whole at once, of before: above it a split is not worth it

double of_all(const Plan& plan, int64_t bytes) {
  int64_t all = 0;
  for (const PlannedUnit& unit : plan.units) all += unsharded_bytes(plan, unit);
  return static_cast<double>(bytes) / static_cast<double>(all);
}

class Suggestion {
 public:
  Suggestion(const ModuleTree& tree, std::span<const RepeatedClass> repeated, std::span<const std::string> unfit)
      : tree_(tree), repeated_(repeated), unfit_(unfit), counts_(parameter_counts(tree)) {
    for (TreeParameter& parameter : tree_.parameters) {
      if (parameter.shape.empty()) parameter.shape = {1};
    }
  }

  std::optional<SuggestedWrap> find() const {
    if (counts_[0] == 0) return std::nullopt;
    const auto is_layer = [](const RepeatedClass& c) { return c.is_numbered && c.holds_modules && c.name != kGeneric; };
    const auto is_block = [](const RepeatedClass& c) { return c.holds_modules && c.name != kGeneric; };
    const auto is_run = [](const RepeatedClass& c) { return c.is_numbered && c.holds_modules; };
    const auto is_part = [](const RepeatedClass& c) { return c.is_numbered; };
    if (auto found = by_classes(is_layer, kShareOfLayers)) return found;
    // Two or three large modules of a class may be an encoder and a decoder: their parts make better units.
    auto blocks = by_classes(is_block);
    if (blocks && largest_inner_share(blocks->plan) <= kLargestPair) return blocks;
    if (auto found = by_classes(is_run)) return found;
    if (auto found = by_classes(is_part)) return found;
    if (blocks) return blocks;
    return by_size();
  }

 private:
  static constexpr const char* kGeneric = "Sequential";  // says nothing of what it holds

  using Classes = std::map<std::string, const RepeatedClass*>;

  std::optional<SuggestedWrap> by_classes(bool (*belongs)(const RepeatedClass&), double least = kShareOfAll) const {
    Classes choice;
    for (const RepeatedClass& repeated : repeated_) {
      if (repeated.why_not.empty() && belongs(repeated)) choice.emplace(repeated.name, &repeated);
    }
    // Those that mostly lie in others are parts of these.
    const std::map<std::string, int64_t> outermost = parameters_by_outermost(choice);
    int64_t sum = 0;
    std::erase_if(choice, [&](const auto& entry) {
      const auto found = outermost.find(entry.first);
      const int64_t parameters = found == outermost.end() ? 0 : found->second;
      if (2 * parameters < entry.second->parameters || share(parameters) < kShareOfOne) return true;
      sum += parameters;
      return false;
    });
    if (choice.empty() || share(sum) < least) return std::nullopt;
    if (outermost_modules(choice) < 2) return std::nullopt;  // units in one another are whole together
    auto found = checked(choice);
    return found ? with_the_rest(std::move(choice), *std::move(found)) : std::nullopt;
  }

  /// Adds classes beside those of the choice, not around them or mostly inside, that hold a good share too, where less
  /// is whole at once for it.
  std::optional<SuggestedWrap> with_the_rest(Classes choice, SuggestedWrap found) const {
    for (const RepeatedClass& repeated : repeated_) {
      if (!repeated.why_not.empty() || choice.contains(repeated.name) || repeated.name == kGeneric) continue;
      const auto inside =
          std::count_if(repeated.modules.begin(), repeated.modules.end(), [&](size_t m) { return lies_in(choice, m); });
      if (2 * static_cast<size_t>(inside) > repeated.modules.size()) continue;
      Classes more = choice;
      more.emplace(repeated.name, &repeated);
      std::map<std::string, int64_t> after = parameters_by_outermost(more);
      if (share(after[repeated.name]) < kShareOfAll) continue;
      after.erase(repeated.name);
      if (after != parameters_by_outermost(choice)) continue;
      auto better = checked(more);
      if (!better || whole_share(better->plan) > kGain * whole_share(found.plan)) continue;
      choice = std::move(more);
      found = *std::move(better);
    }
    return found;
  }

  bool lies_in(const Classes& choice, size_t m) const {
    while (m != 0) {
      m = *tree_.modules[m].parent;
      if (choice.contains(tree_.modules[m].class_name)) return true;
    }
    return false;
  }

  /// Modules of the choice that lie in no other one, each once.
  size_t outermost_modules(const Classes& choice) const {
    size_t count = 0;
    for (size_t m = 1; m < tree_.modules.size(); ++m) {
      const TreeModule& module = tree_.modules[m];
      if (module.object == m && choice.contains(module.class_name) && !lies_in(choice, m)) ++count;
    }
    return count;
  }

  std::optional<SuggestedWrap> checked(const Classes& choice) const {
    std::vector<const RepeatedClass*> chosen;
    for (const auto& [name, repeated] : choice) chosen.push_back(repeated);
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const auto* a, const auto* b) { return a->parameters > b->parameters; });
    WrapOptions wrap;
    wrap.policy = WrapPolicy::kTransformer;
    std::string names;
    for (const RepeatedClass* repeated : chosen) {
      wrap.layer_classes.push_back(repeated->name);
      names += (names.empty() ? "" : " and ") + std::to_string(repeated->modules.size()) + " modules of class " +
               repeated->name;
    }
    int64_t sum = 0;
    for (const auto& [name, parameters] : parameters_by_outermost(choice)) sum += parameters;
    return checked(std::move(wrap), names + " hold " + percent_text(share(sum)) + " of the parameters.");
  }

  /// Elements by the class of the outermost module of the choice around them.
  std::map<std::string, int64_t> parameters_by_outermost(const Classes& choice) const {
    std::map<std::string, int64_t> sums;
    for (const TreeParameter& parameter : tree_.parameters) {
      const std::string* outermost = nullptr;
      for (size_t m = parameter.holders.front(); m != 0; m = *tree_.modules[m].parent) {
        if (choice.contains(tree_.modules[m].class_name)) outermost = &tree_.modules[m].class_name;
      }
      if (outermost != nullptr) sums[*outermost] += numel(parameter.shape);
    }
    return sums;
  }

  std::optional<SuggestedWrap> by_size() const {
    std::optional<SuggestedWrap> best;
    for (const int64_t part : {2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      WrapOptions wrap;
      wrap.policy = WrapPolicy::kSize;
      wrap.min_num_params = std::max<int64_t>(1, round_down(counts_[0] / part));
      auto found = checked(std::move(wrap), "");
      if (found && (!best || whole_share(found->plan) < kGain * whole_share(best->plan))) best = std::move(found);
    }
    if (best && whole_share(best->plan) < kGain) {
      best->why = "No class repeats that holds a good share of the parameters; modules with more than " +
                  std::to_string(*best->wrap.min_num_params) + " become units.";
      return best;
    }
    SuggestedWrap one;
    one.why = "No class repeats that holds a good share of the parameters, and units by size would gain nothing.";
    one.plan = planned(one.wrap);
    return one;
  }

  /// Nothing where a unit would be one that cannot be, or where nothing is a unit but the root.
  std::optional<SuggestedWrap> checked(WrapOptions wrap, std::string why) const {
    SuggestedWrap found{std::move(wrap), std::move(why), {}};
    found.plan = planned(found.wrap);
    if (found.plan.units.size() < 2) return std::nullopt;
    for (size_t m = 1; m < tree_.modules.size(); ++m) {
      if (unfit_[m].empty()) continue;
      for (const PlannedUnit& unit : found.plan.units) {
        if (unit.path == tree_.modules[m].path) return std::nullopt;
      }
    }
    return found;
  }

  Plan planned(const WrapOptions& wrap) const {
    Fsdp2Options options;
    options.wrap = wrap;
    return make_plan(tree_, options, SuggestedWrap::kRanks);
  }

  double share(int64_t parameters) const { return static_cast<double>(parameters) / static_cast<double>(counts_[0]); }

  static double largest_inner_share(const Plan& plan) {
    int64_t largest = 0;
    for (const PlannedUnit& unit : plan.units) {
      if (unit.parent) largest = std::max(largest, unsharded_bytes(plan, unit));
    }
    return of_all(plan, largest);
  }

  /// To one digit and zeros, as a person would write it.
  static int64_t round_down(int64_t value) {
    int64_t unit = 1;
    while (value / unit >= 10) unit *= 10;
    return value / unit * unit;
  }

  ModuleTree tree_;
  std::span<const RepeatedClass> repeated_;
  std::span<const std::string> unfit_;
  std::vector<int64_t> counts_;
};

}  // namespace

double whole_share(const Plan& plan) {
  return of_all(plan, peak_unsharded_bytes(plan));
}

std::optional<SuggestedWrap> suggest_wrap(const ModuleTree& tree, std::span<const RepeatedClass> repeated,
                                          std::span<const std::string> unfit) {
  return Suggestion(tree, repeated, unfit).find();
}

}  // namespace fsdp2
