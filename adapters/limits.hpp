// What a host's configuration may have at most, within kMostHostBytes. Whatever is larger is an error before it costs
// time or memory.
#pragma once
#include <cstddef>

namespace fsdp2::limits {

inline constexpr size_t kDepth = 64;         // of maps and lists in one another
inline constexpr size_t kSettings = 10'000;  // keys and list elements, counted again wherever an anchor is used
inline constexpr size_t kKeyBytes = 256;     // of one key
inline constexpr size_t kShownBytes = 120;   // of a value in a message

}  // namespace fsdp2::limits
