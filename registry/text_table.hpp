// What tables for a person are made of: columns that line up, and sizes in units that can be read.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace fsdp2 {

using TextRow = std::vector<std::string>;

/// One line a row, two blanks between columns; columns in `right` (from 0) end flush, the others begin so. All rows are
/// as long as the first, which names the columns.
std::string aligned(const std::vector<TextRow>& rows, const std::set<size_t>& right = {});

/// "17 B", "1.5 MiB"
std::string bytes_text(int64_t bytes);

/// "12.5 %" for 0.125
std::string percent_text(double share);

/// "1,234,567"
std::string count_text(int64_t count);

}  // namespace fsdp2
