// What bytes hold, as one number.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace fsdp2 {

/// As fast as memory; any changed bit changes the result. Not meant against an adversary.
uint64_t content_hash(std::string_view bytes);
/// Of a tensor's elements, on any device.
uint64_t content_hash(const at::Tensor& tensor);

}  // namespace fsdp2
