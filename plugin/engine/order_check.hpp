// In the first steps: whether ranks are about to take part in the same collective. Without it ranks in different units
// wait for each other until the time is up or, where a transport knows no tags, take each other's parameters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/engine/communicator.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

class OrderCheck {
 public:
  /// `steps`: backward passes to look at; -1: all. Each look costs a collective of a few bytes.
  OrderCheck(const Plan& plan, int64_t steps);

  [[nodiscard]] bool is_due() const { return left_ != 0; }
  void end_of_backward() {
    if (left_ > 0) --left_;
  }

  /// A unit is about to gather its parameters, or to reduce the gradients of the parameters that have one (in the order
  /// of the plan). Throws Error (kFailedPrecondition) on every rank of `group` where one is about to do something else,
  /// naming both. Collective over `group`.
  void before_gather(Communicator& group, std::string_view unit, c10::Device device) const;
  void before_reduction(Communicator& group, std::string_view unit, const std::vector<bool>& has_gradient,
                        c10::Device device) const;

 private:
  struct UnitNames {
    std::string path;
    std::vector<std::string> parameters;
  };
  [[nodiscard]] size_t index_of(std::string_view unit) const;
  void verify(Communicator& group, size_t unit, bool reduces, c10::Device device) const;

  std::vector<UnitNames> units_;
  int64_t left_;
};

}  // namespace fsdp2
