// What this build cannot run yet, in one table. A key leaves the table when its feature is built.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "registry/config.hpp"
#include "registry/consistency.hpp"
#include "registry/nearest_name.hpp"
#include "registry/registry.hpp"

namespace fsdp2 {
namespace {

struct Limit {
  std::string_view key;
  bool (*runs)(const Fsdp2Options& options);
  std::string_view accepted;  // what can be given now
};

using Options = Fsdp2Options;

constexpr std::array kLimits{
    Limit{"version", [](const Options& o) { return o.version == 2; },
          "version 1 is read and printed, not run; set `version = 2` (beside `dialect` and `config`, where another "
          "host's "
          "file is read) to convert it"},
    Limit{"layout", [](const Options& o) { return layout_of(o) != Layout::kFlat; },
          R"(only "ragged" and "per_parameter" are accepted now)"},
    Limit{"offload.params", [](const Options& o) { return !o.offload.params; }, "only false is accepted now"},
    Limit{"activation_checkpointing", [](const Options& o) { return !o.activation_checkpointing.enabled; },
          "only false is accepted now"},
};

/// The source of a key, or of the first key below it ("activation_checkpointing.every").
Source source_of(const KeySources& sources, std::string_view key) {
  const auto found = sources.lower_bound(key);
  if (found == sources.end() || !found->first.starts_with(key)) return {};
  return found->second;
}

Error refused(const Source& source, std::string_view key, const std::string& sentence) {
  const std::string name(key);
  const std::string written = source.key.empty() || source.key == name ? "" : " (from `" + source.key + "`)";
  return error_at(source, name, "`" + name + "`" + written + " " + sentence, {}, ErrorCode::kUnsupported);
}

void check_strategy_name(const Config& config) {
  const std::string full = strategy_full_name(config.options);
  if (find_strategy(full) != nullptr || config.extensions.find_strategy(full) != nullptr) return;
  std::vector<std::string_view> names;
  for (const Strategy& strategy : strategies()) names.push_back(strategy.name);
  for (const ExtensionStrategy& strategy : config.extensions.strategies()) names.emplace_back(strategy.table.name);
  const Source source = source_of(config.sources, "strategy");
  const bool foreign = is_from_outside(full);
  const std::string fault = foreign ? "is not a strategy that is registered" : "is not built yet";
  throw error_at(source, "strategy", "`strategy = \"" + full + "\"` " + fault + "; accepted now: " + quoted_list(names),
                 foreign ? nearest_name(full, names) : std::string(),
                 foreign ? ErrorCode::kNotFound : ErrorCode::kUnsupported);
}

void check_own_options(const Config& config) {
  const ExtensionStrategy* strategy = config.extensions.find_strategy(config.options.strategy);
  if (strategy == nullptr) return;
  const std::span<const char* const> known(strategy->table.option_names, strategy->table.option_count);
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const auto& [name, value] : config.options.strategy_options) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string key = "strategy_options." + name;
    throw error_at(source_of(config.sources, key), key,
                   "strategy \"" + std::string(strategy->table.name) + "\" has no option `" + name + "`; it has " +
                       (names.empty() ? "none" : quoted_list(names)),
                   nearest_name(name, names));
  }
}

}  // namespace

void check_supported(const Config& config, int64_t world) {
  if (world < 1) {
    throw Error(ErrorCode::kInvalidArgument, "the number of ranks must be 1 or more, not " + std::to_string(world));
  }
  const Fsdp2Options& options = config.options;
  check_consistent(config);
  for (const Limit& limit : kLimits) {
    if (limit.runs(options)) continue;
    const std::string verdict = limit.key == "version" ? "= 1 cannot be run: " : "has a value that is not built yet: ";
    throw refused(source_of(config.sources, limit.key), limit.key, verdict + std::string(limit.accepted));
  }
  check_strategy_name(config);
  check_own_options(config);
  check_wrap_complete(config);
  if (!options.dialect.empty()) {
    throw refused(source_of(config.sources, "dialect"), "dialect",
                  "was not followed: these options were read without the adapters");
  }
}

}  // namespace fsdp2
