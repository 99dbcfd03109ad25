// Faults on purpose, for tests/fuzz/planted.sh to show that they are found. Only builds with the option
// FSDP2_PLANTED_FAULTS have them; in all others nothing is left of the calls.
#pragma once
#include <string_view>
#ifdef FSDP2_PLANTED_FAULTS
#include <cstdlib>
#endif

namespace fsdp2 {

/// Whether the environment's FSDP2_PLANTED_FAULT asks for this one.
#ifdef FSDP2_PLANTED_FAULTS
inline bool planted_fault(std::string_view name) {
  static const char* const asked = std::getenv("FSDP2_PLANTED_FAULT");
  return asked != nullptr && name == asked;
}
#else
constexpr bool planted_fault(std::string_view /*name*/) {
  return false;
}
#endif

}  // namespace fsdp2
