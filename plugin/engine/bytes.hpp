// Tensors as plain bytes, for transports that know no dtypes.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "registry/error.hpp"

namespace fsdp2 {

/// The same memory as a flat tensor of bytes, outside autograd.
inline at::Tensor as_bytes(const at::Tensor& tensor) {
  if (!tensor.is_contiguous()) throw Error(ErrorCode::kInternal, "a tensor given to a collective is not contiguous");
  const at::NoGradGuard no_grad;
  return tensor.detach().view({-1}).view(at::kByte);
}

/// Keeps the largest buffer that was given back: fresh pages cost more than a transfer.
class ScratchBytes {
 public:
  /// At least `bytes` on `device`.
  at::Tensor take(int64_t bytes, c10::Device device = c10::kCPU) {
    at::Tensor buffer = std::exchange(kept_, at::Tensor());
    if (!buffer.defined() || buffer.numel() < bytes || buffer.device() != device) {
      buffer = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    }
    return buffer;
  }
  void give_back(at::Tensor buffer) {
    if (!kept_.defined() || kept_.numel() < buffer.numel()) kept_ = std::move(buffer);
  }

 private:
  at::Tensor kept_;
};

}  // namespace fsdp2
