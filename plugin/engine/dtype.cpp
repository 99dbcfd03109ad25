#include "plugin/engine/dtype.hpp"

#include <array>
#include <utility>

namespace fsdp2 {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 12> kTypes{{{DType::kBool, at::kBool},
                                                                   {DType::kUInt8, at::kByte},
                                                                   {DType::kInt8, at::kChar},
                                                                   {DType::kInt16, at::kShort},
                                                                   {DType::kInt32, at::kInt},
                                                                   {DType::kInt64, at::kLong},
                                                                   {DType::kFloat16, at::kHalf},
                                                                   {DType::kBFloat16, at::kBFloat16},
                                                                   {DType::kFloat32, at::kFloat},
                                                                   {DType::kFloat64, at::kDouble},
                                                                   {DType::kComplex64, at::kComplexFloat},
                                                                   {DType::kComplex128, at::kComplexDouble}}};

}  // namespace

at::ScalarType to_torch(DType dtype) {
  return kTypes[static_cast<size_t>(dtype)].second;
}

std::optional<at::ScalarType> to_torch(std::optional<DType> dtype) {
  return dtype ? std::optional(to_torch(*dtype)) : std::nullopt;
}

std::optional<DType> from_torch(at::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  return std::nullopt;
}

}  // namespace fsdp2
