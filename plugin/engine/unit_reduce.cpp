// Gradients of a unit: from full ones on each rank to the mean over ranks, cut as the parameters are. As in PyTorch's
// FSDP2: a reduce-scatter over the shard group, then an all-reduce over the replicate group.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/InferenceMode.h>

#include "plugin/engine/planted_fault.hpp"
#include "plugin/engine/unit.hpp"
#include "registry/error.hpp"

namespace fsdp2 {

namespace {

// Sums of complex numbers are sums of their parts; transports know real numbers only.
at::Tensor as_real(const at::Tensor& flat) {
  return flat.is_complex() ? at::view_as_real(flat).view(-1) : flat;
}

/// A gradient cut in dimension 0 over `chunks`, [ranks, elements of a chunk]; zeros where it has none.
void pack_chunks(const at::Tensor& chunks, const at::Tensor& gradient) {
  if (!gradient.defined()) {
    chunks.zero_();
    return;
  }
  if (gradient.numel() == 0) return;
  const int64_t ranks = chunks.size(0);
  const int64_t rows = chunks.size(1) / (gradient.numel() / gradient.size(0));
  const int64_t full = gradient.size(0) / rows;  // ranks whose chunk holds no padding
  const int64_t rest = gradient.size(0) - full * rows;
  const auto by_rank = gradient.narrow(0, 0, full * rows).unflatten(0, {full, rows});
  chunks.narrow(0, 0, full).view(by_rank.sizes()).copy_(by_rank);
  if (full == ranks) return;
  chunks.narrow(0, full, ranks - full).zero_();
  if (rest == 0) return;
  const auto last = gradient.narrow(0, full * rows, rest);
  chunks[full].narrow(0, 0, last.numel()).view(last.sizes()).copy_(last);
}

bool has_gradient(const UnitParameter& parameter) {
  return parameter.unsharded.grad().defined() || parameter.pending.defined();
}

/// The full gradient, dense, with what is pending; undefined where there is none. The parameter lets go of both.
at::Tensor taken_gradient(UnitParameter& parameter) {
  at::Tensor fresh = std::exchange(parameter.unsharded.mutable_grad(), at::Tensor());
  if (fresh.defined() && fresh.is_sparse()) fresh = fresh.to_dense();
  at::Tensor pending = std::exchange(parameter.pending, at::Tensor());
  if (!pending.defined()) return fresh;
  return fresh.defined() ? pending.add_(fresh) : pending;
}

void accumulate(const at::Tensor& parameter, const at::Tensor& gradient) {
  at::Tensor& own = parameter.mutable_grad();
  if (own.defined()) {
    own.add_(gradient);
  } else {
    own = gradient;
  }
}

}  // namespace

void Unit::reduce_gradients() {
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  const bool any =
      std::any_of(parameters_.begin(), parameters_.end(), has_gradient) ||
      std::any_of(partial_sums_.begin(), partial_sums_.end(), [](const at::Tensor& s) { return s.defined(); });
  if (!any) return;
  // One full gradient in flight at a time; behind it shards of sums may be on their way to the replicas.
  runtime_->advance_reductions();
  if (!sums_in_flight_.empty()) runtime_->finish_reductions();
  if (!gradient_sync_) {
    for (UnitParameter& p : parameters_) {
      if (p.unsharded.grad().defined()) p.pending = taken_gradient(p).to(reduced_dtypes_[p.buffer]);
    }
    if (planted_fault("no-sync gradient lost") && !parameters_.empty()) parameters_.front().pending = at::Tensor();
    return;
  }
  check_order_of_reduction();
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (runtime_->reduces) {
      start_sum(b);
    } else {
      keep_own_gradients(b);
    }
  }
}

void Unit::check_order_of_reduction() const {
  const Runtime& r = *runtime_;
  if (!r.order_check.is_due()) return;
  std::vector<bool> gradients;
  for (const UnitParameter& p : parameters_) gradients.push_back(has_gradient(p) || p.in_sum);
  if (std::find(gradients.begin(), gradients.end(), true) == gradients.end()) return;
  const c10::Device device = buffers_.front().shard().device();
  if (r.gathers) r.order_check.before_reduction(*r.shard_group, path_, gradients, device);
  if (r.replicate_group && all_reduce_) r.order_check.before_reduction(*r.replicate_group, path_, gradients, device);
}

/// Where there is nobody to sum with.
void Unit::keep_own_gradients(size_t b) {
  for (UnitParameter& p : parameters_) {
    if (p.buffer != b || !has_gradient(p)) continue;
    at::Tensor gradient = taken_gradient(p).to(p.shard.scalar_type());
    if (gradient_divisor_) gradient = gradient.div(*gradient_divisor_);
    accumulate(p.shard, gradient);
    gathered_with_gradients_ = true;  // an optimizer may step and drop them before the unit is looked at again
  }
}

// One pass: every gradient to its place in the ranks' parts; zero between them and for parameters without gradient.
// Lets go of each gradient as it goes.
at::Tensor Unit::pack_gradients(size_t b) {
  const FlatBuffer& buffer = buffers_[b];
  at::Tensor packed =
      runtime_->pool->empty(buffer.gathered_numel(), buffer.whole().options().dtype(reduced_dtypes_[b]));
  if (buffer.copies_out()) {
    const at::Tensor parts = packed.view({runtime_->mesh.shard, -1});
    for (UnitParameter& p : parameters_) {
      if (p.buffer == b) pack_chunks(parts.narrow(1, p.chunk.offset, p.chunk.size), taken_gradient(p));
    }
    return packed;
  }
  int64_t end = 0;
  for (UnitParameter& p : parameters_) {
    if (p.buffer != b || !has_gradient(p)) continue;
    if (p.offset > end) packed.narrow(0, end, p.offset - end).zero_();
    packed.narrow(0, p.offset, p.unsharded.numel()).view(p.unsharded.sizes()).copy_(taken_gradient(p));
    end = p.offset + p.unsharded.numel();
  }
  if (packed.numel() > end) packed.narrow(0, end, packed.numel() - end).zero_();
  return packed;
}

std::unique_ptr<Request> Unit::start_shard_group_sum(const at::Tensor& sum, const at::Tensor& packed) {
  Runtime& r = *runtime_;
  double divisor = gradient_divisor_.value_or(static_cast<double>(r.mesh.shard));
  if (planted_fault("no division")) divisor = 1;
  std::unique_ptr<Request> request;
  communicate(*r.shard_group, [&] { request = r.shard_group->reduce_scatter(as_real(sum), as_real(packed), divisor); });
  ++r.statistics.reduce_scatters;
  r.statistics.reduce_scatter_bytes += static_cast<int64_t>(packed.nbytes());
  return request;
}

std::unique_ptr<Request> Unit::start_replicate_group_sum(const at::Tensor& sum) {
  Runtime& r = *runtime_;
  double divisor = gradient_divisor_.value_or(static_cast<double>(r.mesh.replicate));
  if (gradient_divisor_ && r.gathers) divisor = 1;  // was divided in the reduce-scatter
  std::unique_ptr<Request> request;
  communicate(*r.replicate_group, [&] { request = r.replicate_group->all_reduce(as_real(sum), divisor); });
  ++r.statistics.all_reduces;
  r.statistics.all_reduce_bytes += static_cast<int64_t>(sum.nbytes());
  return request;
}

/// To the parameters, in the dtype that they are stored in.
void Unit::hand_over(size_t b, const at::Tensor& sum) {
  const at::Tensor stored = sum.to(buffers_[b].shard().scalar_type());
  for (UnitParameter& p : parameters_) {
    if (p.buffer != b || !std::exchange(p.in_sum, false)) continue;
    accumulate(p.shard, FlatBuffer::alias(stored, p.shard_offset, p.shard_shape));
    gathered_with_gradients_ = true;  // an optimizer may step and drop them before the unit is looked at again
  }
}

void Unit::start_sum(size_t b) {
  const Runtime& r = *runtime_;
  bool any = false;
  for (UnitParameter& p : parameters_) {
    if (p.buffer != b || !has_gradient(p)) continue;
    p.in_sum = true;
    any = true;
  }
  if (!any && !partial_sums_[b].defined()) return;
  SumInFlight started;
  started.buffer = b;
  started.all_reduces = r.replicate_group != nullptr && all_reduce_;
  if (any) {
    started.packed = pack_gradients(b);
    started.sum = started.packed;
    if (r.gathers) {
      started.sum = at::empty({buffers_[b].shard().numel()}, started.packed.options());
      started.request = start_shard_group_sum(started.sum, started.packed);
      started.is_complete = r.replicate_group == nullptr;
    } else if (started.all_reduces && !partial_sums_[b].defined()) {
      started.request = start_replicate_group_sum(started.sum);
      started.is_complete = true;
    }
  }
  if (sums_in_flight_.empty()) runtime_->reducing.push_back(weak_from_this());
  sums_in_flight_.push_back(std::move(started));
}

/// To its next state. Returns whether it is still in flight.
bool Unit::advance(SumInFlight& started) {
  Runtime& r = *runtime_;
  const size_t b = started.buffer;
  if (started.request) {
    Communicator& group = started.is_complete && r.replicate_group ? *r.replicate_group : *r.shard_group;
    communicate(group, [&] { started.request->wait(); });
    started.request.reset();
  }
  started.packed = at::Tensor();
  if (started.is_complete) {
    hand_over(b, started.sum);
    return false;
  }
  if (at::Tensor earlier = std::exchange(partial_sums_[b], at::Tensor()); earlier.defined()) {
    started.sum = started.sum.defined() ? earlier.add_(started.sum) : earlier;
  }
  if (!started.all_reduces) {
    partial_sums_[b] = started.sum;
    return false;
  }
  started.request = start_replicate_group_sum(started.sum);
  started.is_complete = true;
  return true;
}

bool Unit::advance_reduction() {
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  std::vector<SumInFlight> sums = std::exchange(sums_in_flight_, {});
  try {
    for (SumInFlight& sum : sums) {
      if (advance(sum)) sums_in_flight_.push_back(std::move(sum));
    }
  } catch (...) {
    runtime_->pool->abandon();  // those that began may still read and write
    throw;
  }
  return !sums_in_flight_.empty();
}

void Unit::drop_reduction() noexcept {
  for (SumInFlight& sum : std::exchange(sums_in_flight_, {})) {
    try {
      if (sum.request) sum.request->wait();
    } catch (const std::exception&) {  // nobody wants the sum
      runtime_->pool->abandon();
    }
  }
  for (UnitParameter& p : parameters_) p.in_sum = p.in_sum && partial_sums_[p.buffer].defined();
}

void Unit::drop_transfers() noexcept {
  drop_reduction();
  try {
    finish_unshard();
  } catch (const std::exception&) {  // nobody wants the parameters
    runtime_->pool->abandon();
  }
}

void Unit::require_no_partial_sums(const char* call) const {
  for (const at::Tensor& sum : partial_sums_) {
    if (!sum.defined()) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                std::string(call) + ": gradients of " + title() + " wait for their all-reduce, divided as they were; " +
                    "let a backward pass all-reduce them, or zero the gradients, first",
                {.module = path_, .rank = runtime_->communicator->rank()});
  }
}

void Unit::zero_gradients() {
  for (UnitParameter& p : parameters_) {
    p.shard.mutable_grad() = at::Tensor();
    p.pending = at::Tensor();
    p.in_sum = false;
  }
  for (at::Tensor& sum : partial_sums_) sum = at::Tensor();
}

}  // namespace fsdp2
