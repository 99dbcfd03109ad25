// "did you mean ...?"
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace fsdp2 {

/// The least number of insertions, deletions, replacements and swaps of neighbours that turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b);

/// The valid name nearest to what was written (case and `-` for `_` count little), or "" when none is near.
std::string nearest_name(std::string_view written, std::span<const std::string_view> valid);
std::string nearest_name(std::string_view written, std::span<const std::string> valid);

/// "; did you mean `nearest`?" to end a message with, or "" where there is none.
std::string did_you_mean(const std::string& nearest);

/// `"a", "b", "c"`, for lists of what is allowed.
std::string quoted_list(std::span<const std::string_view> names);

}  // namespace fsdp2
