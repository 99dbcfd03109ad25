#include "plugin/engine/engine.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "plugin/engine/communicate.hpp"
#include "plugin/engine/gradients.hpp"
#include "plugin/engine/memory_pool.hpp"
#include "registry/error.hpp"
#include "registry/layout.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

void warn_of_other_owners(const std::vector<std::shared_ptr<Unit>>& units, const LogFunction& log) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> names;
  for (const auto& unit : units) {
    names.insert(names.end(), unit->held_elsewhere().begin(), unit->held_elsewhere().end());
  }
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < names.size() && i < kNamed; ++i) list += (i == 0 ? "`" : ", `") + names[i] + "`";
  if (names.size() > kNamed) list += " and " + std::to_string(names.size() - kNamed) + " more";
  log(true, "the original of " + list +
                " is still held elsewhere (another module or tensor of the host), so its memory is not freed");
}

std::shared_ptr<MemoryPool> pool_for(const Plan& plan, c10::Device device) {
  int64_t largest_unit = 0;
  for (const PlannedUnit& unit : plan.units) largest_unit = std::max(largest_unit, unsharded_bytes(plan, unit));
  // Enough for what is whole at once, and the gradients of one unit beside it.
  return std::make_shared<MemoryPool>(device, static_cast<size_t>(peak_unsharded_bytes(plan) + largest_unit));
}

}  // namespace

Engine::Engine(Plan plan, std::shared_ptr<Communicator> communicator, c10::Device device,
               std::vector<std::vector<ParameterHome>> homes, const LogFunction& log)
    : plan_(std::move(plan)), device_(device) {
  runtime_ = std::make_shared<Runtime>(groups_of(std::move(communicator), plan_), pool_for(plan_, device), plan_, log);
  WrapMeter meter;
  for (const auto& unit : homes) {
    for (const ParameterHome& home : unit) meter.add(static_cast<int64_t>(home.tensor().nbytes()));
  }
  for (size_t u = 0; u < plan_.units.size(); ++u) {
    units_.push_back(std::make_shared<Unit>(runtime_, plan_.units[u], std::move(homes[u]), meter));
    runtime_->units.push_back(units_.back());
  }
  std::vector<std::weak_ptr<Unit>> order;
  for (const size_t u : forward_order(plan_)) order.push_back(units_[u]);
  runtime_->unit_order.expect(std::move(order));
  if (log) warn_of_other_owners(units_, log);

  Statistics& s = runtime_->statistics;
  s.wrap_peak_bytes = meter.peak;
  s.rank = runtime_->communicator->rank();
  s.world_size = runtime_->communicator->size();
  s.units = static_cast<int64_t>(plan_.units.size());
  s.shard_bytes = fsdp2::shard_bytes(plan_);
  s.parameter_bytes = fsdp2::parameter_bytes(plan_);
  s.planned_peak_bytes = peak_unsharded_bytes(plan_);
  for (const PlannedUnit& unit : plan_.units) s.padding_bytes += padding_bytes(unit, plan_.mesh.shard);
}

Engine::~Engine() {
  for (const auto& unit : units_) unit->drop_transfers();
  drop_slots();
}

void Engine::drop_slots() {
  for (const auto& unit : units_) unit->drop_slots();
}

bool Engine::is_detached() const {
  return runtime_->detached;
}

void Engine::require_attached(const char* call) const {
  if (runtime_->detached) throw Error(ErrorCode::kFailedPrecondition, "the engine was detached before");
  if (runtime_->in_local_use) {
    throw Error(ErrorCode::kFailedPrecondition,
                std::string(call) + " while the parameters are gathered for local use; release them first");
  }
}

void Engine::require_rest(const char* call) const {
  require_attached(call);
  for (const auto& unit : units_) {
    if (unit->is_open()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  std::string(call) + " inside a forward of the sharded module; " + unit->title() + " is running");
    }
  }
}

void Engine::detach() {
  require_rest("detach()");
  runtime_->finish_reductions();
  for (const auto& unit : units_) unit->detach();
  runtime_->detached = true;
  runtime_->pool->close();
  runtime_->step_check.forget();
  runtime_->clip_check.end();
}

void Engine::begin_local_use() {
  require_rest("gather()");
  size_t done = 0;
  try {
    for (; done < units_.size(); ++done) units_[done]->begin_local_use();
  } catch (...) {
    for (size_t u = 0; u < done; ++u) units_[u]->end_local_use(false);
    throw;
  }
  runtime_->in_local_use = true;
}

void Engine::end_local_use(bool write_back) {
  if (!runtime_->in_local_use) {
    throw Error(ErrorCode::kFailedPrecondition, "the parameters are not gathered for local use");
  }
  if (write_back) {
    for (const auto& unit : units_) unit->take_local_writes();
  }
  for (const auto& unit : units_) unit->end_local_use(write_back);
  runtime_->in_local_use = false;
  if (write_back) note_own_change();
}

void Engine::note_own_change() {
  if (runtime_->step_check.is_due()) runtime_->step_check.record(runtime_->units);
  if (runtime_->clip_check.is_due()) runtime_->clip_check.record(runtime_->units);
}

std::vector<NamedTensor> Engine::parameters() const {
  std::vector<NamedTensor> result;
  for (const auto& unit : units_) {
    for (const UnitParameter& p : unit->parameters()) result.push_back({p.name, p.shard});
  }
  return result;
}

std::vector<at::Tensor> Engine::gradients() const {
  std::vector<at::Tensor> result;
  for (const auto& [name, shard] : parameters()) {
    if (shard.grad().defined()) result.push_back(shard.grad());
  }
  return result;
}

Communicator* Engine::across() const {
  return runtime_->mesh.shard > 1 ? runtime_->shard_group.get() : nullptr;
}

double Engine::gradient_norm(double p) {
  require_rest("gradient_norm()");
  runtime_->finish_reductions();
  return fsdp2::gradient_norm(gradients(), p, across(), device_);
}

double Engine::clip_gradient_norm(double max_norm, double p) {
  if (!(max_norm >= 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "max_norm is " + std::to_string(max_norm) + ", expected a number of at least 0");
  }
  check_step();
  runtime_->clip_check.end();
  const double norm = gradient_norm(p);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) {  // a norm that is not a number spreads, as in torch.nn.utils.clip_grad_norm_
    scale_gradients(gradients(), factor);
    note_own_change();
  }
  return norm;
}

std::optional<double> Engine::clip_gradients() {
  if (plan_.clip_norm) return clip_gradient_norm(*plan_.clip_norm, 2);
  require_rest("clip_gradients()");
  return std::nullopt;
}

bool Engine::unscale_gradients(double scale) {
  check_step();
  const bool found = fsdp2::unscale_gradients(gradients(), scale, across(), device_);
  note_own_change();
  return found;
}

void Engine::clip_gradient_value(double limit) {
  if (!(limit >= 0)) {
    throw Error(ErrorCode::kInvalidArgument, "the limit is " + std::to_string(limit) + ", expected at least 0");
  }
  check_step();
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : gradients()) gradient.clamp_(-limit, limit);
  note_own_change();
}

void Engine::set_last_backward(bool last) {
  runtime_->last_backward = last;
}

void Engine::zero_gradients() {
  runtime_->finish_reductions();
  for (const auto& unit : units_) unit->zero_gradients();
}

void Engine::check_step() {
  require_rest("check_step()");
  runtime_->finish_reductions();
  if (!runtime_->step_check.is_due()) return;
  runtime_->step_check.verify(*runtime_->communicator, /*with_shards=*/true);
}

Statistics Engine::statistics() const {
  return runtime_->statistics;
}

void Engine::reset_statistics() {
  Statistics& s = runtime_->statistics;
  s.all_gathers = s.all_gather_bytes = s.reduce_scatters = s.reduce_scatter_bytes = 0;
  s.all_reduces = s.all_reduce_bytes = s.stale_gathers = 0;
  s.unsharded_peak_bytes = s.unsharded_bytes;
}

void Engine::mark_written() {
  for (const auto& unit : units_) unit->mark_written();
}

}  // namespace fsdp2
