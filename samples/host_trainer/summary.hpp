// What is said at the end of a run.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

/// One rank's memory.
struct RankMemory {
  int64_t shard_bytes = 0;           // parameters at rest
  int64_t unsharded_peak_bytes = 0;  // the most bytes of whole parameters at once
  int64_t peak_rss_over_start_bytes = 0;
};

/// Of held-out samples.
struct Score {
  double loss = 0;                 // mean over the samples
  std::optional<double> accuracy;  // of classes or tokens; unset for a loss without classes
};
/// "accuracy 81.2 %, loss 0.5432"
std::string to_text(const Score& score);

struct Summary {
  int64_t ranks = 1;
  bool sharded = false;
  int64_t parameter_bytes = 0;
  int64_t start_rss_bytes = 0;  // before the module was loaded
  std::vector<double> step_ms;
  std::vector<double> losses;
  std::vector<RankMemory> memory;
  std::optional<Score> before, after;  // held out
  std::vector<int64_t> predictions;    // of the held-out samples, by the module as it was saved
  std::string saved_as;
};

/// The median of the steps, without the first two: those compile and fill caches. 0 when there are none.
double median_step_ms(const std::vector<double>& step_ms);

nlohmann::ordered_json to_json(const Summary& summary);
std::string to_text(const Summary& summary);

}  // namespace trainer
