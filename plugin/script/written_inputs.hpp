// Which inputs a method changes in place.
#pragma once
#include <ATen/core/function.h>

#include <cstdint>
#include <vector>

namespace fsdp2 {

/// Positions (from 0, without self) of the inputs that the method may change in place, directly or through what it
/// calls. Call it before any method of the module is replaced.
std::vector<int64_t> written_inputs(torch::jit::Function& method);

}  // namespace fsdp2
