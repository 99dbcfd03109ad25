#include "plugin/engine/runtime.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "plugin/engine/unit.hpp"

namespace fsdp2 {

Runtime::Runtime(std::shared_ptr<Communicator> communicator_, std::shared_ptr<MemoryPool> pool_, const Plan& plan)
    : communicator(std::move(communicator_)),
      pool(std::move(pool_)),
      mesh(plan.mesh),
      gathers(plan.mesh.shard > 1 || (plan.force_collectives && plan.mesh.replicate == 1)),
      reduces(plan.mesh.shard * plan.mesh.replicate > 1 || plan.force_collectives) {}

void Runtime::enter_backward() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == graph_task_) return;
  if (graph_task_ != -1) {
    // The pass before this one threw: its callback never ran.
    for (auto& weak : units) {
      if (auto unit = weak.lock()) unit->abandon_backward();
    }
  }
  graph_task_ = task;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this()] { self->finish_backward(); });
}

void Runtime::finish_backward() {
  // Reset first: a failing reduction must not leave the next pass without its callback.
  graph_task_ = -1;
  for (auto& weak : units) {
    if (auto unit = weak.lock()) unit->finish_backward();
  }
}

void Runtime::count_unsharded(int64_t bytes) {
  statistics.unsharded_bytes += bytes;
  statistics.unsharded_peak_bytes = std::max(statistics.unsharded_peak_bytes, statistics.unsharded_bytes);
}

}  // namespace fsdp2
