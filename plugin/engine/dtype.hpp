// Element types: the product's names to LibTorch's and back.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>

#include "registry/dtype.hpp"

namespace fsdp2 {

at::ScalarType to_torch(DType dtype);
std::optional<at::ScalarType> to_torch(std::optional<DType> dtype);

/// Unset for types that cannot be parameters here (quantized, float8, ...).
std::optional<DType> from_torch(at::ScalarType type);

}  // namespace fsdp2
