// What an adapter is: a function from another host's configuration to canonical keys.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host_keys.hpp"
#include "adapters/rank_counts.hpp"
#include "registry/given.hpp"

namespace fsdp2 {

/// What the caller knows beside the file.
struct TranslationContext {
  std::optional<int64_t> version = {};  // the version to convert to, where the host's own TOML names one
  std::vector<std::string> flags = {};  // the other host's command line, which wins over its file
  std::map<std::string, std::string> environment = {};  // variables that the other host reads
  RankCounts ranks = {};                                // on which it would run
  // Reads another file that the host's names. Where it is not given, such a name is an error.
  std::function<std::string(const std::string& path, const Source& source)> read_file = {};
};

struct Translation {
  GivenKeys given;                    // canonical keys that the file names, or whose default there differs from ours
  std::vector<std::string> obsolete;  // keys without a use under version 2, as written
  std::string warning;                // the one warning, which names all of those; empty if there are none
  std::vector<std::string> notes;     // every other remark, each names its key
};

/// From the text of a file, called `file` in messages.
using Translate =
    std::function<Translation(std::string_view text, const std::string& file, const TranslationContext& context)>;

/// From a host's keys where there is no file. `name` stands for them in messages.
using TranslateKeys = Translation (*)(std::span<const HostKey> keys, const std::string& name,
                                      const TranslationContext& context);

struct Adapter {
  std::string_view dialect;  // "accelerate"
  std::string_view help;     // one sentence
  Translation (*translate)(std::string_view text, const std::string& file, const TranslationContext& context);
  TranslateKeys translate_keys = nullptr;                // null: it takes files alone
  bool takes_flags = false;                              // TranslationContext::flags
  std::span<const std::string_view> variables = {};      // names that it reads beside a file
  std::span<const std::string_view> key_variables = {};  // beginnings of those that count in a list of keys
};

}  // namespace fsdp2
