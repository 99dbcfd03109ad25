// Full parameters for the host: for a while, or for ever. In the dtype in which they are stored, as a plain module has
// them, whatever the unit computes in.
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "plugin/engine/unit.hpp"
#include "registry/error.hpp"

namespace fsdp2 {

// The buffers' own memory where no buffer of the unit has another dtype there.
void Unit::gather_stored() {
  const bool casts = std::any_of(buffers_.begin(), buffers_.end(), [](const FlatBuffer& b) { return b.casts(); });
  if (!casts) {
    gather_if_needed(/*for_forward=*/true);
    for (const FlatBuffer& buffer : buffers_) stored_wholes_.push_back(buffer.whole());
    return;
  }
  std::vector<at::Tensor> wholes;
  for (const FlatBuffer& buffer : buffers_) {
    const at::Tensor& shard = buffer.shard();
    wholes.push_back(buffer.gathers() ? runtime_->pool->empty(buffer.whole().numel(), shard.options()) : shard);
  }
  finish_unshard();
  finish(start_gather_into(wholes));
  for (const at::Tensor& whole : wholes) {
    if (!is_shard(whole)) runtime_->count_unsharded(static_cast<int64_t>(whole.nbytes()));
  }
  stored_wholes_ = std::move(wholes);
}

void Unit::drop_stored() {
  for (const at::Tensor& whole : stored_wholes_) {
    if (!is_shard(whole) && !owns_memory_of(whole)) runtime_->count_unsharded(-static_cast<int64_t>(whole.nbytes()));
  }
  stored_wholes_.clear();
}

at::Tensor Unit::stored_whole_of(const UnitParameter& parameter) const {
  return FlatBuffer::alias(stored_wholes_[parameter.buffer], parameter.offset, parameter.shape);
}

void Unit::begin_local_use() {
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  check_shards();
  gather_stored();
  for (UnitParameter& p : parameters_) {
    const at::Tensor whole = stored_whole_of(p);
    for (const Slot& slot : p.slots) slot.put(whole);
    if (p.host.defined()) p.host.show_for_local_use(whole);
  }
}

void Unit::take_local_writes() {
  const at::NoGradGuard no_grad;
  for (UnitParameter& p : parameters_) {
    const at::Tensor shown = p.host.defined() ? p.host.tensor() : p.slots.front().tensor();
    const at::Tensor whole = stored_whole_of(p);
    if (shown.storage().is_alias_of(whole.storage())) continue;  // written where it lies
    if (shown.sizes() != whole.sizes() || shown.scalar_type() != whole.scalar_type()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "parameter `" + p.name +
                      "` was replaced by a tensor of another shape or dtype while it was gathered; " +
                      "write into the gathered tensor (copy_), or release without writing back",
                  {.module = path_, .parameter = p.name, .rank = runtime_->communicator->rank()});
    }
    whole.copy_(shown.detach());
  }
}

void Unit::end_local_use(bool write_back) {
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  fill_slots_with_shards();
  if (write_back && runtime_->gathers) {
    for (UnitParameter& p : parameters_) {
      const at::Tensor part = stored_whole_of(p).view(-1).slice(0, p.shard_begin, p.shard_begin + p.shard.numel());
      p.shard.view(-1).copy_(part);
    }
  }
  drop_stored();
  reshard();
}

void Unit::detach() {
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  gather_stored();  // from our own shards, whatever the host has made of the slots
  for (UnitParameter& p : parameters_) {
    // A storage of its own for each: a saved file must not carry the whole buffer once a parameter.
    const at::Tensor plain = stored_whole_of(p).clone().set_requires_grad(p.shard.requires_grad());
    for (const Slot& slot : p.slots) slot.put(plain);
    if (p.host.defined()) p.host.give_back(plain);
  }
  drop_stored();
  reshard();
  drop_hooks();
  parameters_.clear();
  buffers_.clear();
}

}  // namespace fsdp2
