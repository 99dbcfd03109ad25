// Reading what a host hands over: structs that grow, pointers that may be null.
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

/// A copy of the host's struct in this library's size: fields that an older host does not have are zero, those that
/// only a newer host has are left out. `first_size`: the size in the first release.
template <typename T>
T read_struct(const T* given, const char* name, size_t first_size) {
  const size_t size = require_argument(given, name).struct_size;
  if (size < first_size) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + ".struct_size is " + std::to_string(size) +
                                                 ", expected at least " + std::to_string(first_size) +
                                                 ": set it to sizeof(" + name + ")");
  }
  T result{};
  std::memcpy(&result, given, std::min(size, sizeof(T)));
  result.struct_size = std::min(size, sizeof(T));
  return result;
}

/// Fills the host's struct as far as it reaches; its size stays as the host set it.
template <typename T>
void write_struct(T* target, const T& value, const char* name, size_t first_size) {
  const size_t size = read_struct(target, name, first_size).struct_size;
  constexpr size_t kStart = sizeof(target->struct_size);
  std::memcpy(reinterpret_cast<char*>(target) + kStart, reinterpret_cast<const char*>(&value) + kStart, size - kStart);
}

}  // namespace fsdp2
