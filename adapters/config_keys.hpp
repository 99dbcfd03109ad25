// The keys of a configuration file of unknown format, for telling whose file it is.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace fsdp2 {

struct ConfigKeys {
  std::string format;                        // "TOML", "YAML or JSON", "flags" or "text"
  std::set<std::string, std::less<>> at;     // dotted, "trainer.strategy"
  std::set<std::string, std::less<>> pairs;  // "trainer.strategy=fsdp"

  bool has(std::string_view key) const { return at.contains(key); }
  /// Whether there is a key, or a pair, that begins so.
  bool has_prefix(std::string_view prefix) const;
  bool has_pair_prefix(std::string_view prefix) const;
};

ConfigKeys read_config_keys(std::string_view text, const std::string& file);

}  // namespace fsdp2
