#include "plugin/engine/unit_order.hpp"

#include <algorithm>

namespace fsdp2 {
namespace {

// Of hosts that never come back to where they began: no call of the root, forwards with gradients and no backward.
constexpr size_t kMost = 1U << 16U;

}  // namespace

std::vector<UnitOrder::UnitPtr> UnitOrder::next_in_forward(const UnitPtr& unit, bool outermost, int64_t depth) {
  // A host that calls units one by one begins a new forward with the unit that began the last one.
  if (outermost && !seen_.empty() && seen_.front().lock() == unit) end_of_forward();
  if (seen_.size() == kMost) end_of_forward();
  seen_.push_back(unit);
  const auto is_it = [&](const std::weak_ptr<Unit>& other) { return other.lock() == unit; };
  const auto found = std::find_if(expected_.begin() + static_cast<int64_t>(next_), expected_.end(), is_it);
  if (found == expected_.end()) return {};  // another way than the last time; perhaps they meet again
  next_ = static_cast<size_t>(found - expected_.begin()) + 1;
  std::vector<UnitPtr> result;
  for (size_t i = next_; i < expected_.size() && i < next_ + static_cast<size_t>(depth); ++i) {
    UnitPtr next = expected_[i].lock();
    if (next && next != unit) result.push_back(std::move(next));  // the unit itself is whole until its call ends
  }
  return result;
}

void UnitOrder::end_of_forward() {
  if (!seen_.empty()) expected_ = std::move(seen_);
  seen_.clear();
  next_ = 0;
}

size_t UnitOrder::note_recorded(const UnitPtr& unit) {
  if (recorded_.size() == kMost) recorded_.clear();
  recorded_.push_back(unit);
  return recorded_.size() - 1;
}

std::vector<UnitOrder::UnitPtr> UnitOrder::next_in_backward(const UnitPtr& unit, size_t place, int64_t depth) const {
  if (place >= recorded_.size() || recorded_[place].lock() != unit) return {};  // a graph that was kept
  std::vector<UnitPtr> result;
  for (size_t i = place; i-- > 0 && static_cast<int64_t>(place - i) <= depth;) {
    if (UnitPtr before = recorded_[i].lock()) result.push_back(std::move(before));
  }
  return result;
}

void UnitOrder::end_of_backward() {
  end_of_forward();
  recorded_.clear();
}

}  // namespace fsdp2
