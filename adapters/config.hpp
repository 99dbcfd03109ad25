// A host's TOML file, and through its keys `dialect` and `config` another host's file, to one configuration.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "adapters/host_keys.hpp"
#include "registry/config.hpp"

namespace fsdp2 {

/// A host's own keys in place of the file that `config` would name; `dialect` says whose they are.
using HostKeys = std::optional<std::span<const HostKey>>;

/// Reads the table `[fsdp]` of a TOML file. Overrides are "key=value" with a dotted key of that table; they win.
Config load_config(const std::string& toml_file, std::span<const std::string> overrides = {},
                   const HostKeys& keys = std::nullopt);

/// The same from text. `name` stands for the file in errors and its folder is where a relative `config` is looked up.
Config load_config_text(std::string_view toml, const std::string& name, std::span<const std::string> overrides = {},
                        const HostKeys& keys = std::nullopt);

}  // namespace fsdp2
