#include "plugin/engine/host_tensor.hpp"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace fsdp2 {

HostTensor::HostTensor(at::Tensor tensor, at::Tensor shard) : tensor_(std::move(tensor)), shard_(std::move(shard)) {
  tensor_.mutable_grad() = at::Tensor();  // a whole one would not fit
  tensor_.set_data(shard_);
}

void HostTensor::show_whole(const at::Tensor& leaf) {
  using namespace torch::autograd::impl;
  tensor_.set_data(leaf);
  shows_shard_ = false;
  if (leaf.requires_grad()) set_gradient_edge(tensor_, gradient_edge(leaf));
}

void HostTensor::show_for_local_use(const at::Tensor& leaf) {
  in_local_use_ = true;
  wanted_gradient_ = tensor_.requires_grad();
  tensor_.set_requires_grad(false);
  tensor_.set_data(leaf);
  shows_shard_ = false;
}

void HostTensor::show_shard() {
  if (tensor_.grad_fn()) torch::autograd::impl::set_gradient_edge(tensor_, torch::autograd::Edge());
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
