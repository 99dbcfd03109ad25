// A configuration of any host as this library takes it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/host_keys.hpp"
#include "adapters/rank_counts.hpp"
#include "registry/config.hpp"

namespace fsdp2::cli {

struct TranslationRequest {
  std::string file;                     // "-": standard input
  std::string dialect;                  // empty: its keys tell
  std::optional<int64_t> version;       // to convert to
  std::vector<HostKey> variables;       // that the other host would read
  bool uses_process_variables = false;  // those of this process too
  RankCounts ranks;
  std::vector<std::string> flags;    // the other host's command line
  std::vector<std::string> plugins;  // libraries
};

struct TranslatedFile {
  std::string name;                  // of the file, in messages
  std::string text;                  // of the file
  std::string dialect;               // empty: this library's own, or told by the file that it names
  Config config;                     // its notes are on what keys mean
  std::vector<std::string> remarks;  // all others: whose file it is, what libraries register, what is missing
};

/// Reads another host's file, a list of its keys, or a TOML file of this library. Throws CLI::ValidationError where
/// the request, not the file, is at fault.
TranslatedFile translate_file(const TranslationRequest& request);

}  // namespace fsdp2::cli
