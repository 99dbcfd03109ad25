// What a host sets and does for one unit, or for all inside a module, by its path.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "plugin/engine/engine.hpp"
#include "registry/error.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {

std::vector<Unit*> Engine::units_at(const std::string& path, bool recurse) const {
  std::vector<Unit*> found;
  bool known = false;
  for (const auto& unit : units_) {
    const bool is_it = unit->path() == path;
    known = known || is_it;
    if (is_it || (recurse && (path.empty() || unit->path().starts_with(path + ".")))) found.push_back(unit.get());
  }
  if (known) return found;
  std::vector<std::string_view> paths;
  for (const auto& unit : units_) paths.push_back(unit->path());
  const std::string nearest = nearest_name(path, paths);
  throw Error(ErrorCode::kNotFound, "no unit `" + path + "`" + did_you_mean(nearest),
              {.module = path, .nearest = nearest});
}

void Engine::set_gradient_sync(const std::string& path, bool recurse, bool on) {
  for (Unit* unit : units_at(path, recurse)) unit->set_gradient_sync(on);
}

void Engine::set_all_reduce(const std::string& path, bool recurse, bool on) {
  for (Unit* unit : units_at(path, recurse)) unit->set_all_reduce(on);
}

void Engine::set_gradient_divisor(const std::string& path, bool recurse, double divisor) {
  if (!(divisor >= 0) || std::isinf(divisor)) {
    throw Error(ErrorCode::kInvalidArgument, "the divisor of gradients is " + std::to_string(divisor) +
                                                 ", expected a finite number above 0, or 0 for the number of ranks");
  }
  const auto given = divisor > 0 ? std::optional<double>(divisor) : std::nullopt;
  const std::vector<Unit*> units = units_at(path, recurse);
  runtime_->finish_reductions();
  for (const Unit* unit : units) unit->require_no_partial_sums("set_gradient_divisor()");
  for (Unit* unit : units) unit->set_gradient_divisor(given);
}

std::vector<std::weak_ptr<Unit>> Engine::start_unshard(const std::string& path, bool recurse) {
  require_attached("unshard()");
  std::vector<std::weak_ptr<Unit>> started;
  for (Unit* unit : units_at(path, recurse)) {
    unit->start_unshard();
    started.push_back(unit->weak_from_this());
  }
  return started;
}

void Engine::reshard(const std::string& path, bool recurse) {
  require_attached("reshard()");
  const std::vector<Unit*> units = units_at(path, recurse);
  for (const Unit* unit : units) unit->require_not_in_use("reshard()");
  for (Unit* unit : units) unit->reshard();
}

void Engine::set_prefetch(const std::string& path, const std::vector<std::string>& ahead, bool backward) {
  Unit* unit = units_at(path, /*recurse=*/false).front();
  const auto place_of = [&](const Unit* wanted) {
    const auto found = std::find_if(units_.begin(), units_.end(), [&](const auto& u) { return u.get() == wanted; });
    return static_cast<size_t>(found - units_.begin());
  };
  std::vector<size_t> places;
  std::vector<std::weak_ptr<Unit>> units;
  for (const std::string& next_path : ahead) {
    Unit* next = units_at(next_path, /*recurse=*/false).front();
    if (next == unit) {
      throw Error(ErrorCode::kInvalidArgument, unit->title() + " cannot be gathered ahead of itself", {.module = path});
    }
    places.push_back(place_of(next));
    units.push_back(next->weak_from_this());
  }
  PlannedUnit& planned = plan_.units[place_of(unit)];
  (backward ? planned.ahead_in_backward : planned.ahead_in_forward) = std::move(places);
  unit->set_gathered_ahead(backward, std::move(units));
  runtime_->statistics.planned_peak_bytes = peak_unsharded_bytes(plan_);
}

void Engine::set_reshard_after_forward(const std::string& path, bool recurse, bool reshard) {
  for (Unit* unit : units_at(path, recurse)) unit->set_reshard_after_forward(reshard);
  for (size_t u = 0; u < units_.size(); ++u) {
    plan_.units[u].reshard_after_forward = units_[u]->reshards_after_forward();
    plan_.units[u].reshard_to = units_[u]->reshards_to();
  }
  runtime_->statistics.planned_peak_bytes = peak_unsharded_bytes(plan_);
}

void Engine::set_reshard_after_backward(const std::string& path, bool recurse, bool reshard) {
  for (Unit* unit : units_at(path, recurse)) unit->set_reshard_after_backward(reshard);
}

}  // namespace fsdp2
