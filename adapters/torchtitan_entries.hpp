// torchtitan's TOML file and its flags `--section.key value` as one table of entries.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "registry/given.hpp"

namespace fsdp2 {

struct TitanEntry {
  std::optional<Value> value;  // nothing where it is of a type that none of the keys we read has
  Source key_source;
  Source source;
  std::string written;  // "training.max_norm = 0.5", "--training.max_norm 0.5"
};

/// By section and key, "training.max_norm".
using TitanEntries = std::map<std::string, TitanEntry, std::less<>>;

TitanEntries read_titan_toml(std::string_view text, const std::string& file);

/// Whether a text is a list of flags: its first word begins with "--".
bool holds_titan_flags(std::string_view text);

/// Flags as a file has them: words between blanks, quotes as in a shell, `#` up to the end of the line.
TitanEntries read_titan_flags(std::string_view text, const std::string& file);

/// Flags as a program gets them, which win over what there is.
void apply_titan_flags(TitanEntries& entries, std::span<const std::string> flags);

}  // namespace fsdp2
