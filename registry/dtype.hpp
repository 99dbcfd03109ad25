// Element types, torch-free, with the names PyTorch gives them.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace fsdp2 {

enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};

/// Whether it is a real floating type.
bool is_floating(DType dtype);

/// Bytes of one element.
int64_t size_of(DType dtype);

/// PyTorch's name, for example "bfloat16".
std::string_view name_of(DType dtype);

/// The type of that name, if there is one.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace fsdp2
