// A check that the TOML parser leaves out.
#pragma once
#include <string>
#include <string_view>

namespace fsdp2 {

/// An error where keys and brackets of TOML lie in each other so deep that taking the parsed tables down would overflow
/// the stack, which the parser does not check for dotted keys.
void check_toml_nesting(std::string_view text, const std::string& file);

}  // namespace fsdp2
