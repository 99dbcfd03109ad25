// What a host's configuration may have at most. Whatever is larger is an error before it costs time or memory.
#pragma once
#include <cstddef>

#include "registry/host_text.hpp"

namespace fsdp2::limits {

inline constexpr size_t kBytes = kMostHostBytes;  // of a file, or of a list of keys
inline constexpr size_t kDepth = 64;              // of maps and lists in one another
inline constexpr size_t kSettings = 10'000;       // keys and list elements, counted again wherever an anchor is used
inline constexpr size_t kKeyBytes = 256;          // of one key
inline constexpr size_t kShownBytes = 120;        // of a value in a message

}  // namespace fsdp2::limits
