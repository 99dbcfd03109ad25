// The options that name libraries of strategies and adapters.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "plugin/cli/command.hpp"

namespace fsdp2::cli {

/// Adds `--plugins LIB`. The list is filled when the command line is read.
std::shared_ptr<std::vector<std::string>> add_plugins_option(CLI::App& command);

}  // namespace fsdp2::cli
