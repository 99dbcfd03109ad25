// A unit in a backward pass: from the first gradient that reaches a call of it to the end of the pass.
#include <ATen/core/grad_mode.h>

#include "plugin/engine/unit.hpp"
#include "registry/error.hpp"

namespace fsdp2 {

void Unit::pre_backward(const std::shared_ptr<RecordedCall>& call) {
  if (at::GradMode::is_enabled()) {
    throw Error(
        ErrorCode::kUnsupported,
        title() +
            ": backward (or autograd.grad, inside a forward too) with create_graph = true is not supported on a " +
            "sharded module: its gradients are reduced over ranks outside of autograd",
        {.module = path_});
  }
  if (runtime_->detached) {
    throw Error(ErrorCode::kFailedPrecondition,
                title() + ": backward through a forward that ran before detach(); run the forward again",
                {.module = path_});
  }
  if (runtime_->in_local_use) {
    throw Error(ErrorCode::kFailedPrecondition,
                title() + ": backward while the parameters are gathered for local use; release them first",
                {.module = path_});
  }
  runtime_->enter_backward();
  if (call->in_backward) return;
  unshard(/*for_forward=*/false);
  runtime_->gather_ahead_in_backward(shared_from_this(), call->place);
  // What a forward saved of a host's tensor is that tensor itself.
  for (UnitParameter& p : parameters_) {
    if (p.host.defined()) p.host.show_whole(p.unsharded);
  }
  call->in_backward = true;
  ++open_backwards_;
  calls_in_backward_.push_back(call);
}

void Unit::post_backward(RecordedCall& call) {
  if (!call.in_backward) return;
  call.in_backward = false;
  // Another call of this unit may still need the memory, and its gradients are not complete.
  if (--open_backwards_ > 0 || is_open()) return;
  calls_in_backward_.clear();
  show_shards_to_host();
  reshard_after_backward();
  reduce_gradients();
}

void Unit::close_backward_calls() {
  for (auto& weak : calls_in_backward_) {
    if (auto call = weak.lock()) call->in_backward = false;
  }
  calls_in_backward_.clear();
  open_backwards_ = 0;
  for (UnitParameter& p : parameters_) p.accumulated = false;
  if (is_open()) return;
  show_shards_to_host();
  reshard_after_backward();
}

void Unit::reshard_after_backward() {
  if (reshard_after_backward_ || gathered_ahead_) reshard();  // what no call has used would be old in the next forward
}

void Unit::gradient_accumulated(size_t parameter) {
  if (is_open() && parameters_[parameter].host.defined()) {
    parameters_[parameter].unsharded.mutable_grad() = at::Tensor();
    throw Error(ErrorCode::kFailedPrecondition,
                title() +
                    ": backward before exit(): the unit is still open, so nothing would be reduced; call exit() " +
                    "of every enter() first",
                {.module = path_, .parameter = parameters_[parameter].name, .rank = runtime_->communicator->rank()});
  }
  parameters_[parameter].accumulated = true;
  // The root encloses all others: its end is the end of the pass.
  if (is_root_ || is_open() || open_backwards_ == 0) return;
  for (const auto& weak : calls_in_backward_) {
    const auto call = weak.lock();
    if (call != nullptr && call->in_backward && call->threads_inputs) return;
  }
  const bool complete = std::all_of(parameters_.begin(), parameters_.end(), [](const UnitParameter& p) {
    return p.accumulated || !p.unsharded.requires_grad();
  });
  if (complete) finish_backward();
}

void Unit::finish_backward() {
  close_backward_calls();
  reduce_gradients();
}

void Unit::abandon_backward() {
  drop_reduction();
  try {
    close_backward_calls();
  } catch (const Error&) {  // a gather ahead has failed, too: the fault that ended the pass counts
  }
  for (UnitParameter& p : parameters_) p.unsharded.mutable_grad() = at::Tensor();
}

}  // namespace fsdp2
