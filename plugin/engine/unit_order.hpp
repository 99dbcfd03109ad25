// Which units come next, as far as that is known: for gathers that run ahead of their unit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp2 {

class Unit;

/// Forwards are expected to run the units as the last one did, the first one as the plan lists them. Backward runs
/// through the calls that autograd has recorded, last one first. Every rank sees the same calls, so every rank expects
/// the same; a wrong guess costs a gather, nothing else.
class UnitOrder {
 public:
  using UnitPtr = std::shared_ptr<Unit>;

  /// Before the first forward.
  void expect(std::vector<std::weak_ptr<Unit>> order) { expected_ = std::move(order); }

  /// `unit` begins a call, `outermost` or inside that of another one. Returns the `depth` units that follow.
  std::vector<UnitPtr> next_in_forward(const UnitPtr& unit, bool outermost, int64_t depth);
  /// The next call is the first one of a forward.
  void end_of_forward();

  /// A call that autograd records has ended. Returns its place among those since the last backward pass.
  size_t note_recorded(const UnitPtr& unit);
  /// The `depth` units whose recorded calls ended before that one of `unit`, the last one first.
  [[nodiscard]] std::vector<UnitPtr> next_in_backward(const UnitPtr& unit, size_t place, int64_t depth) const;
  void end_of_backward();

 private:
  std::vector<std::weak_ptr<Unit>> expected_;
  std::vector<std::weak_ptr<Unit>> seen_;  // in the forward that runs
  size_t next_ = 0;                        // in expected_
  std::vector<std::weak_ptr<Unit>> recorded_;
};

}  // namespace fsdp2
