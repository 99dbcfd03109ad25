// Options as JSON, table in table as TOML has them.
#pragma once
#include "plugin/cli/command.hpp"
#include "registry/given.hpp"
#include "registry/options.hpp"

namespace fsdp2::cli {

Json json_of(const Value& value);

/// With the keys that canonical TOML would print.
Json options_json(const Fsdp2Options& options);

}  // namespace fsdp2::cli
