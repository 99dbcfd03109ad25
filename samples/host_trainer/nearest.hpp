// "Did you mean ...?" for names a person may have mistyped.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace trainer {

/// The candidate that is fewest edits away, or "" when none is near.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean X?" or "".
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// "a, b, c"
std::string join(std::span<const std::string> names);

}  // namespace trainer
