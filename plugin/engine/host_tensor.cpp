#include "plugin/engine/host_tensor.hpp"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace fsdp2 {
namespace {

namespace autograd = torch::autograd;

}  // namespace

HostTensor::HostTensor(at::Tensor tensor, at::Tensor shard) : tensor_(std::move(tensor)), shard_(std::move(shard)) {
  tensor_.mutable_grad() = at::Tensor();  // a whole one would not fit
  tensor_.set_data(shard_);
}

void HostTensor::show(const at::Tensor& leaf) {
  tensor_.set_data(leaf);
  shows_shard_ = false;
}

void HostTensor::show_for_forward(const at::Tensor& leaf) {
  show(leaf);
  if (leaf.requires_grad()) autograd::impl::set_gradient_edge(tensor_, autograd::impl::gradient_edge(leaf));
}

void HostTensor::show_for_backward(const at::Tensor& leaf) {
  show(leaf);
}

void HostTensor::show_for_local_use(const at::Tensor& leaf) {
  in_local_use_ = true;
  wanted_gradient_ = tensor_.requires_grad();
  tensor_.set_requires_grad(false);
  show(leaf);
}

void HostTensor::show_shard() {
  if (tensor_.grad_fn()) autograd::impl::set_gradient_edge(tensor_, autograd::Edge());
  tensor_.set_data(shard_);
  shows_shard_ = true;
  if (std::exchange(in_local_use_, false)) tensor_.set_requires_grad(wanted_gradient_);
}

void HostTensor::give_back(const at::Tensor& plain) {
  show_shard();
  tensor_.mutable_grad() = at::Tensor();
  tensor_.set_data(plain);
  shard_ = at::Tensor();
}

}  // namespace fsdp2
