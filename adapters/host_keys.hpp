// A host's own keys where there is no file: the keywords of a call, or variables of an environment.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "adapters/setting.hpp"

namespace fsdp2 {

/// "fsdp_version" and "2", "fsdp_config.cpu_offload" and "true", or "FSDP_VERSION" and "2". A name in capitals is a
/// variable, whose value is text. Any other is a keyword: its value is TOML, or True, False or None; else a bare word
/// is text. A keyword with dots lies in a map.
struct HostKey {
  std::string name;
  std::string value;
  Source source = {};  // where it is written, if anywhere
};

/// From "name=value", which `name` stands for in messages.
HostKey host_key_of(std::string_view pair, const std::string& name = "a host's key");

bool is_variable(std::string_view name);

/// As settings. `name` stands for the list in messages, where a key has no place of its own.
Setting settings_of(std::span<const HostKey> keys, const std::string& name);

}  // namespace fsdp2
