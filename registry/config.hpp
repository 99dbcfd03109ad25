// Options together with where each came from and what a person should hear about them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "registry/extensions.hpp"
#include "registry/given.hpp"
#include "registry/options.hpp"

namespace fsdp2 {

/// By canonical key, for the keys that were written; a default has none.
using KeySources = std::map<std::string, Source, std::less<>>;

struct Config {
  Fsdp2Options options;
  KeySources sources;
  std::string warning;                // the one warning, empty if there is none
  std::vector<std::string> obsolete;  // the keys that it names, as written
  std::vector<std::string> notes;     // each names its key
  Extensions extensions;              // what the libraries in `plugins` and FSDP2_PLUGINS registered
};

/// Options from keys in layers: `given` over `base`. Checks types, ranges, names and conflicts.
/// `base` is what an adapter read; of it, what a key in `given` contradicts gives way, and a note says so.
Config resolve(const GivenKeys& given, const GivenKeys& base = {});

/// Where a key was written; nowhere for a default.
Source source_of(const Config& config, std::string_view key);

/// Refuses, by name, every key whose feature this build cannot run yet. Reading and printing do not call it; planning
/// does. `world` is the number of ranks.
void check_supported(const Config& config, int64_t world);

}  // namespace fsdp2
