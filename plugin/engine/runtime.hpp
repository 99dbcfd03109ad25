// What the units of one engine share: transport, memory, counters, and the state of the backward pass that runs.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "plugin/engine/clip_check.hpp"
#include "plugin/engine/communicator.hpp"
#include "plugin/engine/memory_pool.hpp"
#include "plugin/engine/order_check.hpp"
#include "plugin/engine/rank_groups.hpp"
#include "plugin/engine/statistics.hpp"
#include "plugin/engine/step_check.hpp"
#include "plugin/engine/unit_order.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

class Unit;

/// Owned by every unit, which autograd graphs may keep alive longer than the engine. No locks: an engine belongs to one
/// trainer thread at a time, and backward runs on one other thread while that one waits.
struct Runtime : std::enable_shared_from_this<Runtime> {
  Runtime(RankGroups groups, std::shared_ptr<MemoryPool> pool, const Plan& plan, LogFunction log);

  /// Called by each unit's pre-backward: the first one of a backward pass queues finish_backward() for its end, and
  /// drops what a pass that threw has left behind.
  void enter_backward();

  /// Around each call of a unit, nested ones too. One thread at a time: throws where another one is inside a call.
  void enter_call();
  void leave_call();
  /// Throws while another thread is inside a call.
  void require_caller() const;
  /// Starts the gathers of the units that are expected after a call, or a backward, of `unit`. Collective.
  void gather_ahead_in_forward(const std::shared_ptr<Unit>& unit);
  void gather_ahead_in_backward(const std::shared_ptr<Unit>& unit, size_t place);
  /// When the root has ended: drops what was gathered for units that did not run.
  void end_of_forward();
  /// Waits for the sums of gradients that are in flight, in the order of their starts, and starts the all-reduces
  /// behind them. Collective on a mesh of two dimensions.
  void advance_reductions();
  /// The same until none is left.
  void finish_reductions();

  /// At the start of the outermost call: the checks of what the host did since backward. Collective where one is due.
  void check_host();

  void count_unsharded(int64_t bytes);

  std::shared_ptr<Communicator> communicator;  // of all ranks
  std::shared_ptr<Communicator> shard_group;   // see RankGroups
  std::shared_ptr<Communicator> replicate_group;
  std::map<int64_t, std::shared_ptr<Communicator>> blocks;
  std::shared_ptr<MemoryPool> pool;
  Mesh mesh;
  std::optional<double> gradient_divisor;  // of sums over ranks; unset: means
  bool gathers;                            // whether parameters are cut over ranks
  bool reduces;                            // whether gradients are summed over ranks
  bool detached = false;
  bool in_local_use = false;  // slots hold full tensors: forwards are plain ones of this rank
  Statistics statistics;
  StepCheck step_check;
  ClipCheck clip_check;
  OrderCheck order_check;
  UnitOrder unit_order;
  int64_t calls = 0;  // by the host, that began so far
  int64_t prefetch_forward;
  int64_t prefetch_backward;
  bool last_backward = true;                  // off: the pass to come leaves its last sums in flight
  std::vector<std::weak_ptr<Unit>> reducing;  // units whose sums are in flight, in the order of their starts
  std::vector<std::weak_ptr<Unit>> units;     // plan order: children first, the root last

 private:
  void finish_backward();

  std::atomic<std::thread::id> caller_;  // the thread inside a call, if any; it alone touches the depth
  int call_depth_ = 0;
  int graph_task_ = -1;
  std::weak_ptr<int> pass_;  // alive while autograd holds the callback of the pass, gone when the pass threw
};

}  // namespace fsdp2
