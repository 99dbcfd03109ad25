// Which options bring a plan under a limit of memory.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "registry/config.hpp"

namespace fsdp2::cli {

/// A change of the configuration, or of the number of ranks, and what it comes to.
struct Alternative {
  std::vector<std::string> changes;  // each an override, `mixed_precision.param="bfloat16"`, or "--world 128"
  int64_t peak = 0;                  // bytes of one rank
  bool fits = false;
};

inline constexpr int64_t kMostRanks = int64_t{1} << 24;  // more is a slip

/// What a plan with those options on so many ranks takes of one rank. Throws Error where there is no such plan.
using PeakOf = std::function<int64_t(const Config& config, int64_t world)>;

/// First each change by itself that takes less than now, the best one first. Where none of them fits: those that help
/// together, as many as are needed or all. Where these do not fit either: with more ranks, twice as many until they do.
/// `suggested`: a wrap policy for the model, to be tried where it is another. `ranks_per_node`: where nodes are given.
std::vector<Alternative> find_alternatives(const Config& config, int64_t world, int64_t limit, const PeakOf& peak_of,
                                           const std::optional<WrapOptions>& suggested = {},
                                           std::optional<int64_t> ranks_per_node = {});

}  // namespace fsdp2::cli
