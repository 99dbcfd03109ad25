// Memory of this process, and bytes for a person.
#pragma once
#include <cstdint>
#include <string>

namespace trainer {

int64_t resident_bytes();
/// The most since the last reset (or since the start, where the system does not reset).
int64_t peak_resident_bytes();
void reset_peak_resident_bytes();

/// "12.3 MiB"
std::string format_bytes(int64_t bytes);

}  // namespace trainer
