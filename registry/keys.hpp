// The table of canonical keys: what each is called, what it takes, how it gets into the options and out of them.
// Reading, printing and the lists in error messages all come from it.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "registry/given.hpp"
#include "registry/options.hpp"

namespace fsdp2 {

/// Why a value will not do, without its place and key.
struct ValueFault {
  std::string sentence;
  std::string nearest;
};

/// One canonical key. `take` checks a value and puts it in. `give` puts the value to print into `out`; false: it is at
/// its default, which `out` has then if there is one, and not printed.
struct KeySpec {
  std::string_view name;
  std::string_view allowed;  // "a whole number, 0 or more"
  std::optional<ValueFault> (*take)(Fsdp2Options& options, const Value& value);
  bool (*give)(const Fsdp2Options& options, Value& out);
};

/// All keys, in the order in which they are printed.
std::span<const KeySpec> key_specs();

/// "limit" for "strategy_options.limit", or "" for a key that is none of a strategy's own.
std::string_view strategy_option_name(std::string_view key);

/// Puts a value in as a strategy's own option, which is a boolean, a number or a string.
std::optional<ValueFault> take_strategy_option(StrategyOption& target, const Value& value);

/// The key of that name, or null. All of a strategy's own options have one, which puts nothing in.
const KeySpec* find_key(std::string_view name);

/// The value that the options have for a key, be it the default; nothing where none is set.
std::optional<Value> value_of(const KeySpec& spec, const Fsdp2Options& options);

/// The valid key nearest to what was written, or "".
std::string nearest_key(std::string_view written);

/// "a string", "a whole number", for messages.
std::string_view kind_of(const Value& value);

}  // namespace fsdp2
