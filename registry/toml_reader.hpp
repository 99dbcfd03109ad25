// The table `[fsdp]` of a TOML file, and overrides from a command line, as given keys. Other tables are the host's.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "registry/given.hpp"
#include "registry/options.hpp"

namespace fsdp2 {

/// A value as TOML writes it, "\"size\""; nothing where it is none, or of a type that no key takes.
std::optional<Value> read_value(std::string_view toml);

/// Keys of `[fsdp]` in TOML text, names and types checked. `name` stands for the file in errors.
GivenKeys read_given(std::string_view toml, const std::string& name);

/// The same from a file.
GivenKeys read_given_file(const std::string& file);

/// Puts "key=value" over the keys there are. The value is TOML; a bare word is a string.
void apply_overrides(GivenKeys& given, std::span<const std::string> overrides);

/// All in one, for text that names no other host's file.
Fsdp2Options read_options(std::string_view toml, const std::string& name = "<text>",
                          std::span<const std::string> overrides = {});

}  // namespace fsdp2
