// A text of lines name=value: a file of variables (.env), or the keywords of a call.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host_keys.hpp"

namespace fsdp2 {

/// Whether all lines are such, blank ones and comments aside, and there is one.
bool is_key_list(std::string_view text);

/// With `export` in front or not. Values of variables are read as a shell reads them, but nothing is filled in for `$`;
/// of a variable that comes twice the last line counts. Values of keywords are as host_keys.hpp has them.
std::vector<HostKey> read_key_list(std::string_view text, const std::string& file);

/// Leaves the last of the variables that have one name.
void drop_earlier_variables(std::vector<HostKey>& keys);

}  // namespace fsdp2
