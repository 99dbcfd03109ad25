// Variables of this process, for the hosts that read them.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace fsdp2 {

/// Those whose names begin with one of these.
std::map<std::string, std::string> process_variables(std::span<const std::string_view> beginnings);

}  // namespace fsdp2
