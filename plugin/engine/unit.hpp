// A unit: the parameters that are gathered, resharded and reduced together, and their states.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin/engine/flat_buffer.hpp"
#include "plugin/engine/host_tensor.hpp"
#include "plugin/engine/parameter_home.hpp"
#include "plugin/engine/runtime.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

struct UnitParameter {
  std::string name;
  size_t buffer = 0;
  std::vector<int64_t> shape;  // of the whole
  int64_t offset = 0;          // elements from the start of the whole buffer
  PlannedChunk chunk;          // where the buffer copies out: its place in every rank's part
  at::Tensor shard;            // the leaf that the optimizer steps; what the slots hold at rest
  int64_t shard_offset = 0;    // elements from the start of the shard's buffer
  int64_t shard_begin = 0;     // elements of the parameter that lie before this rank's
  /// `shard` itself has the whole one while a host's tensor shows the whole.
  std::vector<int64_t> shard_shape;
  at::Tensor unsharded;          // the leaf that the unit computes with, in the compute dtype; has memory only while
                                 // the unit is whole
  std::vector<Slot> slots;       // of a scripted module, or
  HostTensor host;               // the host's own tensor, then that is `shard`
  at::Tensor pending;            // full gradient of passes that were not reduced, in the dtype of reductions
  bool in_sum = false;           // of gradients, that is being reduced or waits for its all-reduce
  bool accumulated = false;      // in the backward pass that runs
  uint32_t version = 0;          // of `shard` when it was gathered last
  uint32_t version_at_open = 0;  // of computed_with()

  /// What a forward of the module reads while the unit is open.
  [[nodiscard]] const at::Tensor& computed_with() const { return host.defined() ? shard : unsharded; }
};

/// Bytes of originals and shards that are alive while a module is cut.
struct WrapMeter {
  int64_t alive = 0;
  int64_t peak = 0;
  void add(int64_t bytes) {
    alive += bytes;
    peak = std::max(peak, alive);
  }
};

/// One call of the unit that autograd recorded. Shared by the nodes that bracket it in the backward graph.
struct RecordedCall {
  std::shared_ptr<Unit> unit;
  bool threads_inputs = false;  // a post-backward node waits for the gradients of its inputs
  bool in_backward = false;     // its pre-backward ran, its post-backward not yet
  size_t place = 0;             // among the recorded calls since the last backward pass
};

/// What this rank keeps of a unit that has resharded to a block of ranks, which between them hold it whole once.
struct BlockShare {
  std::shared_ptr<Communicator> block;
  std::vector<at::Tensor> parts;  // neighbouring ranks', one tensor a buffer, in the dtype of the whole
};

/// A gather between its start and its end.
struct GatherInFlight {
  Communicator* group = nullptr;
  std::vector<std::unique_ptr<Request>> requests;
  int64_t copied_bytes = 0;  // gathered parts beside the whole, until they are copied out
};

/// A sum of gradients over ranks between its start and its end.
struct SumInFlight {
  size_t buffer = 0;
  at::Tensor packed;                 // what this rank gives
  at::Tensor sum;                    // undefined where only an earlier partial sum is left
  std::unique_ptr<Request> request;  // null where nothing had to be sent yet
  bool all_reduces = false;          // over the replicas, too; else the sum waits for a pass that does
  bool is_complete = false;          // `request` is the last one
};

/// States: *sharded* (slots hold shards, no memory for the whole), *open* (inside a call: slots hold the full tensors),
/// *kept* (between calls of a unit that does not reshard, and during backward: memory, but slots hold shards), *in a
/// block* (as sharded, and between forward and backward this rank keeps a share of the whole).
class Unit : public std::enable_shared_from_this<Unit> {
 public:
  /// Takes shards of the tensors in `homes` (one a planned parameter), puts them there and lets go of each original as
  /// soon as it is cut. Local.
  Unit(std::shared_ptr<Runtime> runtime, const PlannedUnit& plan, std::vector<ParameterHome> homes, WrapMeter& meter);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  /// "" for the root.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// For messages: "unit `layers.0`" or "the root unit".
  [[nodiscard]] std::string title() const;
  [[nodiscard]] const std::vector<UnitParameter>& parameters() const { return parameters_; }
  /// Parameters whose original some other owner still holds.
  [[nodiscard]] const std::vector<std::string>& held_elsewhere() const { return held_elsewhere_; }
  [[nodiscard]] bool is_open() const { return open_; }
  /// Throws Error (kFailedPrecondition) while another thread is inside a call of the engine.
  void require_caller() const { runtime_->require_caller(); }
  /// Slots hold full tensors: calls run as those of a plain module.
  [[nodiscard]] bool in_local_use() const { return runtime_->in_local_use; }
  /// Attributes that methods of the unit write: tensors may leave through them, as through its outputs.
  [[nodiscard]] const std::vector<Slot>& written_attributes() const { return written_attributes_; }
  void set_written_attributes(std::vector<Slot> slots) { written_attributes_ = std::move(slots); }
  /// What floating inputs and outputs of a call are cast to, if to anything.
  [[nodiscard]] std::optional<at::ScalarType> inputs_cast() const { return inputs_cast_; }
  [[nodiscard]] std::optional<at::ScalarType> outputs_cast() const { return outputs_cast_; }
  /// Whether `tensor` lies in memory that is freed when the unit reshards.
  [[nodiscard]] bool owns_memory_of(const at::Tensor& tensor) const;

  /// Before a call: gathers if needed, full tensors into the slots. Collective unless kept and fresh.
  void open();
  /// Throws where the call has changed a parameter in place: the change is lost with the gathered memory.
  void check_unchanged() const;
  /// After a call, good or not: shards into the slots, memory freed where the plan says so.
  void close();

  /// Before the backward of a recorded call: gathers if needed. Collective unless kept.
  void pre_backward(const std::shared_ptr<RecordedCall>& call);
  /// After it: reduces the gradients that are complete and reshards. Collective if there are gradients.
  void post_backward(RecordedCall& call);
  /// When autograd has added up a parameter's gradient. A unit whose inputs need no gradient has no post-backward: it
  /// is done when all its parameters are. Collective then.
  void gradient_accumulated(size_t parameter);
  /// At the end of a backward pass: whatever is left. Collective if there are gradients.
  void finish_backward();
  /// Forgets a backward pass that threw, with the full gradients it has left.
  void abandon_backward();

  /// Off: the backward passes to come keep full gradients on this rank, to be reduced with those of the first pass
  /// after it is on again (gradient accumulation without communication).
  void set_gradient_sync(bool on) { gradient_sync_ = on; }
  /// Off: the backward passes to come reduce over the shard group only; the sums wait for the first pass after it is on
  /// again. Of no effect on a mesh of one row.
  void set_all_reduce(bool on) { all_reduce_ = on; }
  /// Sums over ranks are divided by it; unset: by the number of ranks.
  void set_gradient_divisor(std::optional<double> divisor) { gradient_divisor_ = divisor; }
  /// Drops gradients, and what waits to become one.
  void zero_gradients();

  /// Starts a gather, as for a forward; nothing to do where the unit is kept and fresh. Collective.
  void start_unshard();
  /// The same, before a forward or a backward that is expected: for drop_unused_gather(). Collective.
  void start_gather_ahead(bool for_forward);
  /// Waits for it; nothing to do where none is in flight. Whoever needs the memory does this by itself.
  void finish_unshard();
  /// Frees what was gathered ahead of a call that did not come. Local.
  void drop_unused_gather();
  /// When the call has ended: backward will come to it in turn.
  void note_recorded(RecordedCall& call);
  /// Waits for the requests of sums that are in flight. Starts the all-reduces behind reduce-scatters, which stay in
  /// flight; hands the others to the shards. Returns whether any is left. Collective on a mesh of two dimensions.
  bool advance_reduction();
  /// Forgets them. Local, but for what has begun.
  void drop_reduction() noexcept;
  /// Ends what is in flight, for nobody: a transport is not to write into memory that is gone.
  void drop_transfers() noexcept;
  /// Throws Error (kFailedPrecondition) while sums over the shard group wait for their all-reduce.
  void require_no_partial_sums(const char* call) const;
  /// Throws Error (kFailedPrecondition) inside a call and in backward.
  void require_not_in_use(const char* call) const;
  /// Frees all but the shard, if there is any. Local, but for the end of a gather in flight.
  void reshard();
  [[nodiscard]] bool reshards_after_forward() const { return reshard_after_forward_; }
  /// The number of ranks in its block, 0 where it reshards to none.
  [[nodiscard]] int64_t reshards_to() const { return block_ ? block_->size() : 0; }
  /// To shards, if at all: to no block.
  void set_reshard_after_forward(bool reshard) {
    reshard_after_forward_ = reshard;
    block_.reset();
  }
  void set_reshard_after_backward(bool reshard) { reshard_after_backward_ = reshard; }
  /// Units that the host has named to be gathered ahead when this one runs; none: those that are expected next.
  [[nodiscard]] const std::vector<std::weak_ptr<Unit>>& gathered_ahead(bool backward) const {
    return backward ? ahead_in_backward_ : ahead_in_forward_;
  }
  void set_gathered_ahead(bool backward, std::vector<std::weak_ptr<Unit>> units) {
    (backward ? ahead_in_backward_ : ahead_in_forward_) = std::move(units);
  }

  /// Kept memory counts as stale from now on.
  void mark_written() { marked_written_ = true; }
  /// Full tensors, without gradients and in the stored dtype, into the slots until end_local_use(). Collective.
  void begin_local_use();
  /// Before a write-back: what the host has put in the place of full tensors, into their memory. Throws Error
  /// (kFailedPrecondition), naming the parameter, where it does not fit. Local.
  void take_local_writes();
  /// Shards into the slots. `write_back`: first takes this rank's part of the full tensors into them. Local.
  void end_local_use(bool write_back);
  /// Plain copies of the full parameters into the slots; the unit is done. Collective.
  void detach();
  /// Forgets the module. A module that keeps an activation would else keep itself alive through the unit.
  void drop_slots();

 private:
  void unshard(bool for_forward);
  void gather_if_needed(bool for_forward);
  void start_gather_if_needed(bool for_forward);
  bool start_if_at_rest(bool for_forward);
  void reshard_after_forward();
  void reshard_after_backward();
  void keep_share();
  void drop_share();
  [[nodiscard]] bool is_whole() const;
  [[nodiscard]] bool was_written() const;
  [[nodiscard]] const UnitParameter* changed_by_the_call() const;
  void start_gather();
  [[nodiscard]] GatherInFlight start_gather_into(const std::vector<at::Tensor>& wholes,
                                                 const BlockShare* share = nullptr);
  void finish(GatherInFlight gather);
  void give_up(GatherInFlight gather);
  void gather_stored();
  void drop_stored();
  [[nodiscard]] bool is_shard(const at::Tensor& tensor) const;
  [[nodiscard]] at::Tensor stored_whole_of(const UnitParameter& parameter) const;
  [[nodiscard]] bool has_gradients() const;
  [[nodiscard]] bool may_have_been_stepped() const;
  void note_gather();
  void check_shards() const;
  void close_backward_calls();
  void cut(const PlannedUnit& plan, const PlannedParameter& planned, ParameterHome home, WrapMeter& meter);
  void fill_slots_with_shards();
  void fill_slots_with_full_tensors();
  void show_shards_to_host();
  void drop_hooks();
  void reduce_gradients();
  void check_order_of_reduction() const;
  void start_sum(size_t buffer);
  bool advance(SumInFlight& sum);
  void keep_own_gradients(size_t buffer);
  [[nodiscard]] at::Tensor pack_gradients(size_t buffer);
  [[nodiscard]] std::unique_ptr<Request> start_shard_group_sum(const at::Tensor& sum, const at::Tensor& packed);
  [[nodiscard]] std::unique_ptr<Request> start_replicate_group_sum(const at::Tensor& sum);
  void hand_over(size_t buffer, const at::Tensor& sum);
  void communicate(Communicator& group, c10::function_ref<void()> collective) const;

  std::shared_ptr<Runtime> runtime_;
  std::string path_;
  bool reshard_after_forward_;
  bool reshard_after_backward_ = true;
  std::shared_ptr<Communicator> block_;  // to which it reshards after forward; null where that is to shards
  std::optional<at::ScalarType> inputs_cast_;
  std::optional<at::ScalarType> outputs_cast_;
  std::vector<FlatBuffer> buffers_;
  std::vector<c10::ScalarType> reduced_dtypes_;  // one a buffer, as the next
  std::vector<at::Tensor> partial_sums_;         // over the shard group, while the all-reduce waits
  std::vector<SumInFlight> sums_in_flight_;
  std::vector<UnitParameter> parameters_;
  std::vector<std::string> held_elsewhere_;
  std::vector<Slot> written_attributes_;
  std::optional<GatherInFlight> in_flight_;
  std::optional<BlockShare> share_;
  std::vector<at::Tensor> stored_wholes_;  // one a buffer: full parameters in the stored dtype, for local use
  std::vector<std::weak_ptr<RecordedCall>> calls_in_backward_;
  std::vector<std::weak_ptr<Unit>> ahead_in_forward_;
  std::vector<std::weak_ptr<Unit>> ahead_in_backward_;
  std::optional<double> gradient_divisor_;
  bool gradient_sync_ = true;
  bool all_reduce_ = true;
  bool is_root_;
  bool open_ = false;
  int open_backwards_ = 0;
  bool gathered_ahead_ = false;    // of a call that has not come yet
  bool ahead_of_forward_ = false;  // that one, else of a backward
  int64_t ahead_in_call_ = 0;      // of the host, by its number
  bool marked_written_ = false;
  bool gathered_with_gradients_ = false;
};

}  // namespace fsdp2
