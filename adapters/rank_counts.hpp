// How many ranks there will be and where, as far as the caller of a translation knows.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "adapters/setting.hpp"
#include "registry/config.hpp"

namespace fsdp2 {

struct RankCounts {
  std::optional<int64_t> num_processes;  // ranks on all nodes together
  std::optional<int64_t> num_nodes;
  std::optional<int64_t> processes_per_node;
};

/// From "num_processes=8" and the like. Two tell the third. Throws Error (kInvalidArgument) with the nearest name.
RankCounts read_rank_counts(std::span<const std::string> pairs);

/// One of them as the setting of a host. Its place is the caller's word.
Setting count_setting(const std::string& name, int64_t count);

/// Puts one, if it is known, into the host's settings, as its command line would. The note, where they had another.
std::optional<std::string> put_count(SettingsTable& settings, const std::string& key, const std::string& name,
                                     std::optional<int64_t> count);

/// Refuses, at its key, a mesh or a block of ranks that does not fit those there will be, as far as they are known.
void check_ranks(const Config& config, const RankCounts& ranks);

}  // namespace fsdp2
