#include "plugin/engine/order_check.hpp"

#include <algorithm>

#include "plugin/engine/rank_values.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

constexpr const char* kOrderOfUnits = "the comparison of the order of units";

std::string title_of(const std::string& path) {
  return path.empty() ? "the root unit" : "unit `" + path + "`";
}

}  // namespace

OrderCheck::OrderCheck(const Plan& plan, int64_t steps) : left_(steps) {
  if (steps == 0) return;
  for (const PlannedUnit& unit : plan.units) {
    UnitNames names{unit.path, {}};
    for (const PlannedParameter& parameter : unit.parameters) names.parameters.push_back(parameter.name);
    units_.push_back(std::move(names));
  }
}

size_t OrderCheck::index_of(std::string_view unit) const {
  return std::find_if(units_.begin(), units_.end(), [&](const UnitNames& known) { return known.path == unit; }) -
         units_.begin();
}

void OrderCheck::verify(Communicator& group, size_t unit, bool reduces, c10::Device device) const {
  constexpr size_t kValues = 3;
  const auto values = all_gather_values<int64_t>(
      group, kOrderOfUnits, {static_cast<int64_t>(unit), reduces ? 1 : 0, group.world_rank()}, device);
  const auto in_words = [&](const int64_t* rank) {
    return "rank " + std::to_string(rank[2]) + (rank[1] != 0 ? " reduces the gradients of " : " gathers ") +
           title_of(units_.at(static_cast<size_t>(rank[0])).path);
  };
  for (size_t rank = 1; rank < values.size() / kValues; ++rank) {
    const int64_t* other = &values[rank * kValues];
    if (other[0] == values[0] && other[1] == values[1]) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "ranks are in different collectives: " + in_words(values.data()) + ", " + in_words(other) +
                    ". Every rank must run the same units in the same order, whatever its data",
                {.key = "debug.order_check", .module = units_[unit].path, .rank = other[2]});
  }
}

void OrderCheck::before_gather(Communicator& group, std::string_view unit, c10::Device device) const {
  verify(group, index_of(unit), /*reduces=*/false, device);
}

void OrderCheck::before_reduction(Communicator& group, std::string_view unit, const std::vector<bool>& has_gradient,
                                  c10::Device device) const {
  const size_t index = index_of(unit);
  verify(group, index, /*reduces=*/true, device);
  std::vector<int64_t> own{group.world_rank()};
  own.insert(own.end(), has_gradient.begin(), has_gradient.end());
  const auto all = all_gather_values<int64_t>(group, kOrderOfUnits, own, device);
  for (size_t rank = 1; rank < all.size() / own.size(); ++rank) {
    const int64_t* other = &all[rank * own.size()];
    const auto [first, differing] =
        std::mismatch(all.begin() + 1, all.begin() + static_cast<int64_t>(own.size()), other + 1);
    const auto place = static_cast<size_t>(first - all.begin() - 1);
    if (place == has_gradient.size()) continue;
    const std::string& name = units_[index].parameters[place];
    throw Error(ErrorCode::kFailedPrecondition,
                "`" + name + "` has a gradient on rank " + std::to_string(*first != 0 ? all[0] : other[0]) +
                    " and none on rank " + std::to_string(*first != 0 ? other[0] : all[0]) +
                    ". Every rank must use the same parameters, whatever its data",
                {.key = "debug.order_check", .module = units_[index].path, .parameter = name, .rank = other[0]});
  }
}

}  // namespace fsdp2
