// Variables of this process, for the hosts that read them.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace fsdp2 {

/// Whether a host that reads `readers` reads the variable: they are names, or beginnings of names up to a "_".
bool reads_variable(std::span<const std::string_view> readers, std::string_view name);

/// Those of the process that are read.
std::map<std::string, std::string> process_variables(std::span<const std::string_view> readers);

}  // namespace fsdp2
