// A host's TOML file, and through its keys `dialect` and `config` another host's file, to one configuration.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "adapters/adapter.hpp"
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

/// What another host's file says, with the keys of [fsdp] beside it, which win.
Config take_translation(const GivenKeys& given, Translation translation);

/// The libraries in `plugins` of a file's keys, those in FSDP2_PLUGINS, and `more`, paths from this process's folder.
/// `name` as above.
Extensions open_libraries(GivenKeys& given, const std::string& name, std::span<const std::string> more = {});

/// From keys that were read already, and libraries that are open. `context` is what the caller knows beside them; its
/// environment counts in place of this process's, which the functions above take.
Config load_given(GivenKeys given, const std::string& name, Extensions extensions, const TranslationContext& context);

}  // namespace fsdp2
