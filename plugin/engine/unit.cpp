// The states of a unit: open, kept, in a block, sharded, and the gather between them. Cutting is in unit_shard.cpp,
// backward in unit_backward.cpp, gradients in unit_reduce.cpp, full parameters for the host in unit_local_use.cpp.
#include "plugin/engine/unit.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "plugin/engine/communicate.hpp"
#include "plugin/engine/planted_fault.hpp"
#include "plugin/engine/stream_capture.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

void refuse_capture_of(const std::vector<FlatBuffer>& buffers, const std::string& title) {
  if (!buffers.empty()) refuse_stream_capture(buffers.front().shard().device(), title);
}

}  // namespace

std::string Unit::title() const {
  return path_.empty() ? "the root unit" : "unit `" + path_ + "`";
}

bool Unit::is_whole() const {
  return std::all_of(buffers_.begin(), buffers_.end(), [](const FlatBuffer& b) { return b.is_whole(); });
}

bool Unit::has_gradients() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const UnitParameter& p) { return p.shard.grad().defined(); });
}

bool Unit::was_written() const {
  return marked_written_ || std::any_of(parameters_.begin(), parameters_.end(),
                                        [](const UnitParameter& p) { return p.shard._version() != p.version; });
}

// Some of LibTorch's optimizers (SGD) write through `data()`, which no version counter sees. An optimizer writes only
// where there is a gradient, so a unit that was gathered while gradients were pending, or has some now, may have been
// stepped.
bool Unit::may_have_been_stepped() const {
  return gathered_with_gradients_ || has_gradients();
}

void Unit::note_gather() {
  for (UnitParameter& p : parameters_) p.version = p.shard._version();
  gathered_with_gradients_ = has_gradients();
  marked_written_ = false;
}

void Unit::check_shards() const {
  for (const UnitParameter& p : parameters_) {
    for (const Slot& slot : p.slots) {
      if (!slot.tensor().is_same(p.shard)) {
        throw Error(ErrorCode::kFailedPrecondition,
                    "parameter `" + p.name + "` of the sharded module was replaced; write into the sharded tensor " +
                        "(copy_) instead",
                    {.module = path_, .parameter = p.name, .rank = runtime_->communicator->rank()});
      }
    }
    if (p.host.defined() && !p.host.shows_shard()) continue;  // another call of the unit is in backward
    if (!p.shard.storage().is_alias_of(buffers_[p.buffer].shard().storage())) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "the data of parameter `" + p.name + "` was moved away from its shard (module.to(), set_data() or " +
                      "similar); detach first, convert, and shard again",
                  {.module = path_, .parameter = p.name, .rank = runtime_->communicator->rank()});
    }
  }
}

void Unit::communicate(Communicator& group, c10::function_ref<void()> collective) const {
  refuse_capture_of(buffers_, title());
  try {
    fsdp2::communicate(group, title(), collective);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kCommunication) runtime_->pool->abandon();
    ErrorDetails details = e.details();
    details.module = path_;
    throw Error(e.code(), e.what(), std::move(details));
  }
}

void Unit::start_gather() {
  if (!share_) note_gather();  // what is written from now on may not be in it; a share is as old as it is
  try {
    std::vector<at::Tensor> wholes;
    for (FlatBuffer& buffer : buffers_) {
      if (!buffer.is_whole()) {
        buffer.allocate(*runtime_->pool);
        runtime_->count_unsharded(buffer.bytes());
      }
      wholes.push_back(buffer.whole());
    }
    in_flight_ = start_gather_into(wholes, share_ ? &*share_ : nullptr);
    drop_share();
  } catch (...) {
    reshard();  // half-filled memory must not pass for whole
    throw;
  }
}

void Unit::finish_unshard() {
  if (!in_flight_) return;
  GatherInFlight gather = std::move(*in_flight_);
  in_flight_.reset();
  try {
    finish(std::move(gather));
  } catch (...) {
    reshard();
    throw;
  }
}

GatherInFlight Unit::start_gather_into(const std::vector<at::Tensor>& wholes, const BlockShare* share) {
  Runtime& r = *runtime_;
  Communicator& group = share != nullptr ? *share->block : r.gathers ? *r.shard_group : *r.communicator;
  if (r.gathers && r.order_check.is_due()) r.order_check.before_gather(group, path_, wholes.front().device());
  GatherInFlight gather;
  gather.group = &group;
  try {
    communicate(group, [&] {
      for (size_t b = 0; b < buffers_.size(); ++b) {
        const FlatBuffer& buffer = buffers_[b];
        if (is_shard(wholes[b])) continue;
        const int64_t bytes = buffer.gathered_numel() * static_cast<int64_t>(wholes[b].element_size());
        if (buffer.copies_out()) {
          gather.copied_bytes += bytes;
          r.count_unsharded(bytes);
        }
        const at::Tensor& own = share != nullptr ? share->parts[b] : buffer.shard();
        gather.requests.push_back(buffer.start_gather(own, wholes[b], group, *r.pool));
        if (!buffer.gathers()) continue;
        ++r.statistics.all_gathers;
        r.statistics.all_gather_bytes += bytes;
      }
    });
  } catch (...) {
    give_up(std::move(gather));
    throw;
  }
  return gather;
}

void Unit::finish(GatherInFlight gather) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  try {
    communicate(*gather.group, [&] {
      for (auto& request : gather.requests) request->wait();
    });
  } catch (...) {
    give_up(std::move(gather));
    throw;
  }
  runtime_->count_unsharded(-gather.copied_bytes);
}

/// Those that began may still write.
void Unit::give_up(GatherInFlight gather) {
  if (!gather.requests.empty()) runtime_->pool->abandon();
  gather.requests.clear();
  runtime_->count_unsharded(-gather.copied_bytes);
}

bool Unit::is_shard(const at::Tensor& tensor) const {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const FlatBuffer& b) { return tensor.storage().is_alias_of(b.shard().storage()); });
}

void Unit::unshard(bool for_forward) {
  // Written tensors are never inference tensors, whatever mode the host is in: training may follow.
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  gathered_ahead_ = false;
  check_shards();
  gather_if_needed(for_forward);
}

void Unit::start_unshard() {
  start_if_at_rest(/*for_forward=*/true);
}

bool Unit::start_if_at_rest(bool for_forward) {
  if (open_ || in_flight_) return false;
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  check_shards();
  start_gather_if_needed(for_forward);
  return true;
}

void Unit::start_gather_ahead(bool for_forward) {
  if (!start_if_at_rest(for_forward)) return;
  gathered_ahead_ = in_flight_.has_value();
  ahead_of_forward_ = for_forward;
  ahead_in_call_ = runtime_->calls;
}

void Unit::drop_unused_gather() {
  if (gathered_ahead_) reshard();
}

void Unit::note_recorded(RecordedCall& call) {
  call.place = runtime_->unit_order.note_recorded(shared_from_this());
}

void Unit::require_not_in_use(const char* call) const {
  if (!open_ && open_backwards_ == 0) return;
  throw Error(ErrorCode::kFailedPrecondition,
              std::string(call) + " of " + title() + " inside its own " + (open_ ? "forward" : "backward"),
              {.module = path_, .rank = runtime_->communicator->rank()});
}

void Unit::gather_if_needed(bool for_forward) {
  finish_unshard();
  start_gather_if_needed(for_forward);
  finish_unshard();
  for (UnitParameter& p : parameters_) {
    if (p.unsharded.requires_grad() != p.shard.requires_grad()) p.unsharded.set_requires_grad(p.shard.requires_grad());
  }
}

void Unit::start_gather_if_needed(bool for_forward) {
  const bool copies =
      std::any_of(buffers_.begin(), buffers_.end(), [](const FlatBuffer& b) { return !b.shard_is_whole(); });
  const bool is_held = is_whole() || share_.has_value();
  const bool stale = copies && is_held && (was_written() || (for_forward && may_have_been_stepped())) &&
                     !planted_fault("stale kept unit");
  if (stale) {
    ++runtime_->statistics.stale_gathers;
    drop_share();
  }
  if (!is_whole() || stale) start_gather();
}

void Unit::reshard() {
  gathered_ahead_ = false;
  finish_unshard();
  drop_share();
  for (FlatBuffer& buffer : buffers_) {
    if (buffer.shard_is_whole() || !buffer.is_whole()) continue;
    buffer.free();
    runtime_->count_unsharded(-buffer.bytes());
  }
}

void Unit::reshard_after_forward() {
  if (!reshard_after_forward_ || open_backwards_ > 0) return;
  if (block_ && !was_written()) {
    keep_share();
  } else {
    reshard();
  }
}

// Rank j of a block of k keeps the parts of ranks [j W/k, (j + 1) W/k) of the W that shard.
void Unit::keep_share() {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  BlockShare share{block_, {}};
  const int64_t count = runtime_->mesh.shard / block_->size();
  for (const FlatBuffer& buffer : buffers_) {
    share.parts.push_back(buffer.parts_of(block_->rank() * count, count, *runtime_->pool));
  }
  for (const at::Tensor& parts : share.parts) runtime_->count_unsharded(static_cast<int64_t>(parts.nbytes()));
  reshard();
  share_ = std::move(share);
}

void Unit::drop_share() {
  if (!share_) return;
  for (const at::Tensor& parts : share_->parts) runtime_->count_unsharded(-static_cast<int64_t>(parts.nbytes()));
  share_.reset();
}

void Unit::fill_slots_with_shards() {
  for (const UnitParameter& p : parameters_) {
    for (const Slot& slot : p.slots) slot.put(p.shard);
  }
  show_shards_to_host();
}

void Unit::show_shards_to_host() {
  for (UnitParameter& p : parameters_) {
    if (p.host.defined()) p.host.show_shard();
  }
}

void Unit::fill_slots_with_full_tensors() {
  for (UnitParameter& p : parameters_) {
    for (const Slot& slot : p.slots) slot.put(p.unsharded);
    if (planted_fault("tied gradient dropped") && p.slots.size() > 1) p.slots.back().put(p.unsharded.detach());
    if (p.host.defined()) p.host.show_whole(p.unsharded);
  }
}

void Unit::open() {
  if (runtime_->detached) {
    throw Error(ErrorCode::kFailedPrecondition, title() + " was detached", {.module = path_});
  }
  refuse_capture_of(buffers_, title());
  runtime_->enter_call();
  try {
    runtime_->check_host();
    // What was gathered ahead in this very call of the host is not older than it; else an optimizer may have stepped.
    unshard(/*for_forward=*/!(gathered_ahead_ && ahead_of_forward_ && ahead_in_call_ == runtime_->calls));
    runtime_->gather_ahead_in_forward(shared_from_this());
  } catch (...) {
    runtime_->leave_call();
    if (reshard_after_forward_ && open_backwards_ == 0) reshard();  // its own gather may have been a good one
    throw;
  }
  fill_slots_with_full_tensors();
  for (UnitParameter& p : parameters_) p.version_at_open = p.computed_with()._version();
  open_ = true;
}

const UnitParameter* Unit::changed_by_the_call() const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [&](const UnitParameter& p) {
    return !buffers_[p.buffer].shard_is_whole() && p.computed_with()._version() != p.version_at_open;
  });
  return found == parameters_.end() ? nullptr : &*found;
}

void Unit::check_unchanged() const {
  const UnitParameter* changed = changed_by_the_call();
  if (changed == nullptr) return;
  throw Error(ErrorCode::kUnsupported,
              title() + " changes its own parameter `" + changed->name + "` in place while it runs; the change would " +
                  "be lost with the gathered copy. Change the sharded tensor between steps, or make it a buffer",
              {.module = path_, .parameter = changed->name, .rank = runtime_->communicator->rank()});
}

void Unit::close() {
  open_ = false;
  runtime_->leave_call();
  if (changed_by_the_call() != nullptr) marked_written_ = true;  // kept memory must not pass for what the shards hold
  fill_slots_with_shards();
  reshard_after_forward();
  if (is_root_) runtime_->end_of_forward();
}

bool Unit::owns_memory_of(const at::Tensor& tensor) const {
  return tensor.has_storage() && std::any_of(buffers_.begin(), buffers_.end(), [&](const FlatBuffer& b) {
           return tensor.storage().is_alias_of(b.whole().storage());
         });
}

void Unit::drop_slots() {
  written_attributes_.clear();
  for (UnitParameter& p : parameters_) p.slots.clear();
}

}  // namespace fsdp2
