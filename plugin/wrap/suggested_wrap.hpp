// A wrap policy for a model that nobody has chosen one for.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "plugin/wrap/repeated_classes.hpp"
#include "registry/module_tree.hpp"
#include "registry/options.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

struct SuggestedWrap {
  WrapOptions wrap;
  std::string why;  // a sentence
  Plan plan;        // what it gives on kRanks ranks, with everything else at its default

  static constexpr int64_t kRanks = 8;
};

/// What is whole at once, at most, of all units whole.
double whole_share(const Plan& plan);

/// The outermost classes that repeat and hold a good share of the parameters, layers before their parts, and
/// further classes that hold a good share of the rest; where none does, the size above which modules become units with
/// which least is whole at once; where that gains nothing, "none". Nothing for a model without parameters. Parameters
/// without dimensions, which cannot be planned, count as one element.
std::optional<SuggestedWrap> suggest_wrap(const ModuleTree& tree, std::span<const RepeatedClass> repeated,
                                          std::span<const std::string> unfit);

}  // namespace fsdp2
