// A tensor with its name in the module.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace fsdp2 {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace fsdp2
