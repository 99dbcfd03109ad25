// What a translation took from where, for a person and for programs.
#pragma once
#include <string>

#include "plugin/cli/command.hpp"
#include "plugin/cli/translated_file.hpp"

namespace fsdp2::cli {

/// A line for each canonical key that was set or is not at this library's default, with where it comes from; then the
/// keys that lose their meaning, and every note.
std::string difference_text(const TranslatedFile& file);

/// The same, the TOML and its options.
Json translation_json(const TranslatedFile& file);

}  // namespace fsdp2::cli
