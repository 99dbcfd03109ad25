#include "plugin/engine/runtime.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "plugin/engine/unit.hpp"
#include "registry/error.hpp"

namespace fsdp2 {

Runtime::Runtime(RankGroups groups, std::shared_ptr<MemoryPool> pool_, const Plan& plan, LogFunction log)
    : communicator(std::move(groups.world)),
      shard_group(std::move(groups.shard)),
      replicate_group(std::move(groups.replicate)),
      blocks(std::move(groups.blocks)),
      pool(std::move(pool_)),
      mesh(plan.mesh),
      gradient_divisor(plan.gradient_divisor),
      gathers(fsdp2::gathers(plan)),
      reduces(fsdp2::reduces(plan)),
      step_check(communicator->size() > 1 ? plan.check_steps : 0),
      clip_check(plan.clip_norm, std::move(log)),
      order_check(plan, communicator->size() > 1 ? plan.order_check : 0),
      prefetch_forward(plan.prefetch_forward),
      prefetch_backward(plan.prefetch_backward) {}

namespace {

template <class F>
void for_each_unit(const std::vector<std::weak_ptr<Unit>>& units, F&& act) {
  for (const auto& weak : units) {
    if (auto unit = weak.lock()) act(*unit);
  }
}

std::vector<UnitOrder::UnitPtr> named_or(const std::vector<std::weak_ptr<Unit>>& named,
                                         std::vector<UnitOrder::UnitPtr> expected) {
  if (named.empty()) return expected;
  std::vector<UnitOrder::UnitPtr> units;
  for (const auto& weak : named) {
    if (auto unit = weak.lock()) units.push_back(std::move(unit));
  }
  return units;
}

Error other_thread_error(int64_t rank) {
  return Error(ErrorCode::kFailedPrecondition,
               "another thread is inside a forward of this sharded module; an engine serves one thread at a time",
               {.rank = rank});
}

}  // namespace

void Runtime::require_caller() const {
  const std::thread::id caller = caller_.load();
  if (caller != std::thread::id() && caller != std::this_thread::get_id())
    throw other_thread_error(communicator->rank());
}

void Runtime::enter_call() {
  std::thread::id caller;
  if (!caller_.compare_exchange_strong(caller, std::this_thread::get_id()) && caller != std::this_thread::get_id()) {
    throw other_thread_error(communicator->rank());
  }
  if (call_depth_++ == 0) ++calls;
}

void Runtime::leave_call() {
  if (--call_depth_ == 0) caller_.store(std::thread::id());
}

void Runtime::check_host() {
  if (call_depth_ != 1) return;
  if (step_check.is_due()) step_check.verify(*communicator, /*with_shards=*/false);
  clip_check.verify();
}

void Runtime::gather_ahead_in_forward(const std::shared_ptr<Unit>& unit) {
  auto expected = unit_order.next_in_forward(unit, call_depth_ == 1, prefetch_forward);
  for (const auto& next : named_or(unit->gathered_ahead(/*backward=*/false), std::move(expected))) {
    next->start_gather_ahead(/*for_forward=*/true);
  }
}

void Runtime::gather_ahead_in_backward(const std::shared_ptr<Unit>& unit, size_t place) {
  auto expected = unit_order.next_in_backward(unit, place, prefetch_backward);
  for (const auto& next : named_or(unit->gathered_ahead(/*backward=*/true), std::move(expected))) {
    next->start_gather_ahead(/*for_forward=*/false);
  }
}

void Runtime::end_of_forward() {
  unit_order.end_of_forward();
  for_each_unit(units, [](Unit& unit) { unit.drop_unused_gather(); });
}

void Runtime::advance_reductions() {
  std::erase_if(reducing, [](const std::weak_ptr<Unit>& weak) {
    const auto unit = weak.lock();
    return unit == nullptr || !unit->advance_reduction();
  });
}

void Runtime::finish_reductions() {
  while (!reducing.empty()) advance_reductions();
}

void Runtime::enter_backward() {
  const int task = torch::autograd::get_current_graph_task_id();
  const bool running = !pass_.expired();
  if (running && task == graph_task_) return;
  if (running) {
    throw Error(
        ErrorCode::kUnsupported,
        "a backward pass through a sharded module was started inside another one (as activation checkpointing " +
            std::string("does); this is not supported"));
  }
  if (graph_task_ != -1) {
    // The pass before this one threw: its callback never ran.
    for_each_unit(units, [](Unit& unit) { unit.abandon_backward(); });
  }
  graph_task_ = task;
  auto pass = std::make_shared<int>(task);
  pass_ = pass;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this(), pass = std::move(pass)] { self->finish_backward(); });
}

void Runtime::finish_backward() {
  graph_task_ = -1;
  try {
    for_each_unit(units, [](Unit& unit) { unit.finish_backward(); });
    unit_order.end_of_backward();
    if (!last_backward) {
      step_check.forget();  // the sums that are to come change gradients, too
      return;
    }
    finish_reductions();
    step_check.record(units);
    clip_check.record(units);
    order_check.end_of_backward();
  } catch (...) {
    for_each_unit(units, [](Unit& unit) { unit.abandon_backward(); });
    throw;
  }
}

void Runtime::count_unsharded(int64_t bytes) {
  statistics.unsharded_bytes += bytes;
  statistics.unsharded_peak_bytes = std::max(statistics.unsharded_peak_bytes, statistics.unsharded_bytes);
}

}  // namespace fsdp2
