#include "samples/host_trainer/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "samples/host_trainer/memory.hpp"

namespace trainer {
namespace {

nlohmann::ordered_json score_json(const Score& score) {
  nlohmann::ordered_json json{{"loss", score.loss}};
  if (score.accuracy) json["accuracy"] = *score.accuracy;
  return json;
}

}  // namespace

std::string to_text(const Score& score) {
  const std::string loss = fmt::format("loss {:.4f}", score.loss);
  return score.accuracy ? fmt::format("accuracy {:.1f} %, ", 100 * *score.accuracy) + loss : loss;
}

double median_step_ms(const std::vector<double>& step_ms) {
  if (step_ms.size() <= 2) return 0;
  std::vector<double> sorted(step_ms.begin() + 2, step_ms.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

nlohmann::ordered_json to_json(const Summary& s) {
  const RankMemory& first = s.memory.at(0);
  nlohmann::ordered_json json{{"median_step_ms", median_step_ms(s.step_ms)},
                              {"peak_rss_over_start_bytes", first.peak_rss_over_start_bytes},
                              {"unsharded_peak_bytes", first.unsharded_peak_bytes},
                              {"shard_bytes", first.shard_bytes},
                              {"parameter_bytes", s.parameter_bytes},
                              {"ranks", s.ranks},
                              {"sharded", s.sharded}};
  for (const RankMemory& m : s.memory)
    json["memory"].push_back({{"shard_bytes", m.shard_bytes},
                              {"unsharded_peak_bytes", m.unsharded_peak_bytes},
                              {"peak_rss_over_start_bytes", m.peak_rss_over_start_bytes}});
  if (s.before) json["held_out_before"] = score_json(*s.before);
  if (s.after) json["held_out_after"] = score_json(*s.after);
  if (!s.predictions.empty()) json["predictions"] = s.predictions;
  return json;
}

std::string to_text(const Summary& s) {
  std::string text =
      fmt::format("\n{} steps, loss {:.4f} -> {:.4f}", s.losses.size(), s.losses.front(), s.losses.back());
  if (const double median = median_step_ms(s.step_ms); median > 0)
    text += fmt::format(", {:.1f} ms a step (median)", median);
  text += '\n';
  if (s.before && s.after) text += fmt::format("held out: {}  ->  {}\n", to_text(*s.before), to_text(*s.after));
  text +=
      fmt::format("{:<6}{:>22}{:>22}{:>22}\n", "rank", "parameters at rest", "gathered at most", "peak RSS over start");
  for (size_t rank = 0; rank < s.memory.size(); ++rank) {
    const RankMemory& m = s.memory[rank];
    text += fmt::format("{:<6}{:>22}{:>22}{:>22}\n", rank, format_bytes(m.shard_bytes),
                        format_bytes(m.unsharded_peak_bytes), format_bytes(m.peak_rss_over_start_bytes));
  }
  if (!s.saved_as.empty()) text += fmt::format("saved as {}, a plain TorchScript file\n", s.saved_as);
  if (!s.predictions.empty()) {
    const auto shown = std::min<ptrdiff_t>(24, static_cast<ptrdiff_t>(s.predictions.size()));
    text += fmt::format("its classes of the first {} held-out samples: {}\n", shown,
                        fmt::join(s.predictions.begin(), s.predictions.begin() + shown, " "));
  }
  return text;
}

}  // namespace trainer
