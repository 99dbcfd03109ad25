// The keys of a configuration file of unknown format, for telling whose file it is.
#pragma once
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "adapters/host_keys.hpp"

namespace fsdp2 {

struct ConfigKeys {
  std::string format;                        // "TOML", "YAML or JSON", "flags", "text" or "list"
  bool has_own_table = false;                // TOML's [fsdp], of this plugin itself
  std::set<std::string, std::less<>> at;     // dotted, "trainer.strategy"
  std::set<std::string, std::less<>> pairs;  // "trainer.strategy=fsdp"

  bool has(std::string_view key) const { return at.contains(key); }
  /// Whether there is a key, or a pair, that begins so.
  bool has_prefix(std::string_view prefix) const;
  bool has_pair_prefix(std::string_view prefix) const;
};

ConfigKeys read_config_keys(std::string_view text, const std::string& file);

/// A host's own keys, with the maps that those with dots lie in.
ConfigKeys keys_of_list(std::span<const HostKey> list);

}  // namespace fsdp2
