// Amounts on a command line: "80GiB", "300GB/s", "400e12".
#pragma once
#include <cstdint>
#include <string>

namespace fsdp2::cli {

/// Bytes: a number with B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (of 1024) or nothing behind it. Throws
/// std::invalid_argument, saying what would be right, as the next ones do.
int64_t parse_bytes(const std::string& text);

/// Bytes a second: bytes with "/s" behind, or bits as "400Gbit/s".
double parse_rate(const std::string& text);

/// A number above 0 with K, M, G, T, P (powers of 1000) or nothing behind it.
double parse_number(const std::string& text);

/// Seconds: a number with us, ms or s behind it.
double parse_seconds(const std::string& text);

}  // namespace fsdp2::cli
