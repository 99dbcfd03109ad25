// Options as the table `[fsdp]` in canonical TOML.
#pragma once
#include <string>

#include "registry/given.hpp"
#include "registry/options.hpp"

namespace fsdp2 {

/// Reads back to equal options. Keys at their defaults are left out, except `version`, `strategy`,
/// `reshard_after_forward` and `wrap.policy`.
std::string to_toml(const Fsdp2Options& options);

/// The table `[fsdp.wrap]` alone.
std::string wrap_to_toml(const WrapOptions& wrap);

/// The same as an inline table, which an override can take.
std::string wrap_to_inline_toml(const WrapOptions& wrap);

/// A value as TOML writes it.
std::string value_text(const StrategyOption& option);
std::string value_text(const Value& value);

}  // namespace fsdp2
