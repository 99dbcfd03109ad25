// Structs of the C headers, which grow: both sides say how far theirs reach.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "registry/error.hpp"

namespace fsdp2 {

/// Throws Error (kInvalidArgument) for null.
template <typename T>
T& require_argument(T* pointer, const char* name) {
  if (pointer == nullptr) throw Error(ErrorCode::kInvalidArgument, std::string(name) + " is null");
  return *pointer;
}

/// The size of a struct in the first ABI that had it: the least that the other side can give. It stays when the struct
/// grows.
template <typename T>
inline constexpr size_t kFirstSize = 0;

/// No struct will be as large, and nothing lies at a lower address: a size and a pointer cannot be taken for each
/// other.
inline constexpr size_t kSizesEnd = 65536;

/// A copy of the other side's struct in this library's size: fields that an older one does not have are zero, those
/// that only a newer one has are left out.
template <typename T>
T read_struct(const T* given, const char* name) {
  static_assert(kFirstSize<T> > 0 && kFirstSize<T> <= sizeof(T));
  const size_t size = require_argument(given, name).struct_size;
  if (size < kFirstSize<T>) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + ".struct_size is " + std::to_string(size) +
                                                 ", expected at least " + std::to_string(kFirstSize<T>) +
                                                 ": set it to sizeof(" + name + ")");
  }
  if (size >= kSizesEnd) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + ".struct_size is " + std::to_string(size) +
                                                 ", which is no size of it: set it to sizeof(" + name + ")");
  }
  T result{};
  std::memcpy(&result, given, std::min(size, sizeof(T)));
  result.struct_size = std::min(size, sizeof(T));
  return result;
}

/// Fills the other side's struct as far as it reaches; its size stays as it was set there.
template <typename T>
void write_struct(T* target, const T& value, const char* name) {
  const size_t size = read_struct(target, name).struct_size;
  constexpr size_t kStart = sizeof(target->struct_size);
  std::memcpy(reinterpret_cast<char*>(target) + kStart, reinterpret_cast<const char*>(&value) + kStart, size - kStart);
}

}  // namespace fsdp2
