// Gradients of a unit: from full ones on each rank to the mean over ranks, cut as the parameters are.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/InferenceMode.h>

#include "plugin/engine/unit.hpp"

namespace fsdp2 {

namespace {

// Means of complex numbers are means of their parts; transports know real numbers only.
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

/// The full gradient, dense, undefined where there is none; the parameter lets go of it.
at::Tensor taken_gradient(UnitParameter& parameter) {
  at::Tensor gradient = std::exchange(parameter.unsharded.mutable_grad(), at::Tensor());
  return gradient.defined() && gradient.is_sparse() ? gradient.to_dense() : gradient;
}

}  // namespace

void Unit::reduce_gradients() {
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  for (size_t b = 0; b < buffers_.size(); ++b) {
    const bool any = std::any_of(parameters_.begin(), parameters_.end(),
                                 [&](const UnitParameter& p) { return p.buffer == b && p.unsharded.grad().defined(); });
    if (any) reduce_buffer(b);
  }
}

void Unit::take_gradient(UnitParameter& parameter, const at::Tensor& gradient) {
  at::Tensor& own = parameter.shard.mutable_grad();
  if (own.defined()) {
    own.add_(gradient);
  } else {
    own = gradient;
  }
}

// One pass: every gradient to its place in the ranks' parts; zero between them and for parameters without gradient.
// Lets go of each gradient as it goes.
at::Tensor Unit::pack_gradients(size_t b) {
  const FlatBuffer& buffer = buffers_[b];
  at::Tensor packed = runtime_->pool->empty(buffer.gathered_numel(), buffer.whole().options());
  if (buffer.copies_out()) {
    const at::Tensor parts = packed.view({runtime_->mesh.shard, -1});
    for (UnitParameter& p : parameters_) {
      if (p.buffer == b) pack_chunks(parts.narrow(1, p.chunk.offset, p.chunk.size), taken_gradient(p));
    }
    return packed;
  }
  int64_t end = 0;
  for (UnitParameter& p : parameters_) {
    if (p.buffer != b || !p.unsharded.grad().defined()) continue;
    if (p.offset > end) packed.narrow(0, end, p.offset - end).zero_();
    packed.narrow(0, p.offset, p.unsharded.numel()).view(p.unsharded.sizes()).copy_(taken_gradient(p));
    end = p.offset + p.unsharded.numel();
  }
  if (packed.numel() > end) packed.narrow(0, end, packed.numel() - end).zero_();
  return packed;
}

void Unit::reduce_buffer(size_t b) {
  Runtime& r = *runtime_;
  std::vector<UnitParameter*> with_gradient;
  for (UnitParameter& p : parameters_) {
    if (p.buffer == b && p.unsharded.grad().defined()) with_gradient.push_back(&p);
  }
  if (!r.reduces) {
    for (UnitParameter* p : with_gradient) take_gradient(*p, taken_gradient(*p));
    return;
  }
  at::Tensor packed = pack_gradients(b);
  at::Tensor reduced = packed;
  communicate([&] {
    if (r.gathers) {
      reduced = at::empty({buffers_[b].shard().numel()}, packed.options());
      r.communicator->reduce_scatter_mean(as_real(reduced), as_real(packed))->wait();
      ++r.statistics.reduce_scatters;
      r.statistics.reduce_scatter_bytes += buffers_[b].gathered_bytes();
    } else {
      r.communicator->all_reduce_mean(as_real(reduced))->wait();
      ++r.statistics.all_reduces;
      r.statistics.all_reduce_bytes += buffers_[b].gathered_bytes();
    }
  });
  for (UnitParameter* p : with_gradient) {
    take_gradient(*p, FlatBuffer::alias(reduced, p->shard_offset, p->shard.sizes()));
  }
}

}  // namespace fsdp2
