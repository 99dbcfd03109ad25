// The least sizes of the structs that a host hands over: those of ABI 1.0, in which they came.
#pragma once
#include <fsdp2/plugin.h>

#include "registry/c_struct.hpp"

namespace fsdp2 {

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

}  // namespace fsdp2
