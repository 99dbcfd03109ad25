// A parameter tensor that belongs to the host (of a torch::nn::Module): it cannot be exchanged for another one, since
// the host's objects hold it, so it is made to show other memory. A parameter of a scripted module lies in slots
// (slot.hpp).
#pragma once
#include <ATen/core/Tensor.h>

namespace fsdp2 {

/// At rest the tensor is the sharded leaf that an optimizer steps. While it shows the whole it is, for autograd, a
/// result of the unit's own leaf, so gradients go there; its `grad` stays that of the shard. Version counter,
/// `requires_grad` and identity are the host's throughout.
class HostTensor {
 public:
  HostTensor() = default;
  /// From now on `tensor` shows `shard`; what it showed is let go.
  HostTensor(at::Tensor tensor, at::Tensor shard);

  [[nodiscard]] bool defined() const { return tensor_.defined(); }
  [[nodiscard]] bool shows_shard() const { return shows_shard_; }

  /// The host's tensor, whatever it shows now.
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }

  /// Shows `leaf`, with the gradient edge of it where it needs one: during a forward, and while a backward reads what
  /// the forward has saved (autograd saves the tensor itself, and wants its edge to be there still).
  void show_whole(const at::Tensor& leaf);
  /// Shows the memory of `leaf`, and asks for no gradient: for forwards of this rank alone.
  void show_for_local_use(const at::Tensor& leaf);
  /// Back at rest.
  void show_shard();
  /// A plain tensor for ever: `plain`, whole.
  void give_back(const at::Tensor& plain);

 private:
  at::Tensor tensor_;
  at::Tensor shard_;  // of the same memory as tensor_ at rest
  bool shows_shard_ = true;
  bool in_local_use_ = false;
  bool wanted_gradient_ = false;
};

}  // namespace fsdp2
