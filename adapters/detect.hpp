// Whose configuration a file is, from its text and its name; whose a list of keys is.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host_keys.hpp"

namespace fsdp2 {

struct DialectCandidate {
  std::string_view dialect;
  int weight = 0;
  std::vector<std::string> evidence;  // "the key `zero_optimization`"

  /// "deepspeed (the key `zero_optimization`)"
  std::string explain() const;
};

struct DialectGuess {
  std::string_view dialect;                  // empty: not sure
  std::vector<DialectCandidate> candidates;  // the likeliest first
  bool is_own = false;                       // a table [fsdp] makes it this plugin's own, broken TOML too
  std::string reason;                        // why it is not sure, where the candidates alone do not say it

  /// All candidates, or the reason.
  std::string explain() const;
};

/// Looks at keys only; the values are for the adapter. Text that is neither TOML, YAML nor JSON is searched for words
/// that stand before a colon or an equals sign. Never throws over what the text holds.
DialectGuess detect_dialect(std::string_view text, const std::string& file);

/// The same of a host's own keys.
DialectGuess detect_dialect(std::span<const HostKey> keys);

}  // namespace fsdp2
