// Reading what a host hands over: structs that grow, pointers that may be null.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include <fsdp2/plugin.h>

#include "registry/error.hpp"

namespace fsdp2 {

/// Throws Error (kInvalidArgument) for null.
template <typename T>
T& require_argument(T* pointer, const char* name) {
  if (pointer == nullptr) throw Error(ErrorCode::kInvalidArgument, std::string(name) + " is null");
  return *pointer;
}

/// The size of a struct in ABI 0.1, in which it came: the least that a host can give. It stays when the struct grows.
template <typename T>
inline constexpr size_t kFirstSize = 0;
template <>
inline constexpr size_t kFirstSize<fsdp2_host_info> = 48;
template <>
inline constexpr size_t kFirstSize<fsdp2_config_args> = 40;
template <>
inline constexpr size_t kFirstSize<fsdp2_shard_args> = 48;
template <>
inline constexpr size_t kFirstSize<fsdp2_plan_args> = 32;
template <>
inline constexpr size_t kFirstSize<fsdp2_communicator> = 72;
template <>
inline constexpr size_t kFirstSize<fsdp2_shard_tensors_args> = 80;
template <>
inline constexpr size_t kFirstSize<fsdp2_statistics> = 144;

/// A copy of the host's struct in this library's size: fields that an older host does not have are zero, those that
/// only a newer host has are left out.
template <typename T>
T read_struct(const T* given, const char* name) {
  static_assert(kFirstSize<T> > 0 && kFirstSize<T> <= sizeof(T));
  const size_t size = require_argument(given, name).struct_size;
  if (size < kFirstSize<T>) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + ".struct_size is " + std::to_string(size) +
                                                 ", expected at least " + std::to_string(kFirstSize<T>) +
                                                 ": set it to sizeof(" + name + ")");
  }
  T result{};
  std::memcpy(&result, given, std::min(size, sizeof(T)));
  result.struct_size = std::min(size, sizeof(T));
  return result;
}

/// Fills the host's struct as far as it reaches; its size stays as the host set it.
template <typename T>
void write_struct(T* target, const T& value, const char* name) {
  const size_t size = read_struct(target, name).struct_size;
  constexpr size_t kStart = sizeof(target->struct_size);
  std::memcpy(reinterpret_cast<char*>(target) + kStart, reinterpret_cast<const char*>(&value) + kStart, size - kStart);
}

}  // namespace fsdp2
