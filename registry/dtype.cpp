#include "registry/dtype.hpp"

#include <array>

namespace fsdp2 {
namespace {

struct NamedType {
  DType dtype;
  std::string_view name;
  int64_t size;
};

// In the order of the enumerators: the enumerator is the index.
constexpr std::array<NamedType, 12> kNamedTypes{{{DType::kBool, "bool", 1},
                                                 {DType::kUInt8, "uint8", 1},
                                                 {DType::kInt8, "int8", 1},
                                                 {DType::kInt16, "int16", 2},
                                                 {DType::kInt32, "int32", 4},
                                                 {DType::kInt64, "int64", 8},
                                                 {DType::kFloat16, "float16", 2},
                                                 {DType::kBFloat16, "bfloat16", 2},
                                                 {DType::kFloat32, "float32", 4},
                                                 {DType::kFloat64, "float64", 8},
                                                 {DType::kComplex64, "complex64", 8},
                                                 {DType::kComplex128, "complex128", 16}}};

}  // namespace

bool is_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

int64_t size_of(DType dtype) {
  return kNamedTypes[static_cast<size_t>(dtype)].size;
}

std::string_view name_of(DType dtype) {
  return kNamedTypes[static_cast<size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const NamedType& row : kNamedTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace fsdp2
