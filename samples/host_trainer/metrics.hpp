// Numbers of a run: one JSON object a line for programs, a progress bar for a person.
#pragma once
#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trainer {

struct StepMetrics {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean over ranks
  double step_ms = 0;
  double samples_per_s = 0;  // of all ranks
  int64_t all_gather_bytes = 0;
  int64_t reduce_scatter_bytes = 0;
};

/// Writes nothing where the path is empty.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);
  void step(const StepMetrics& metrics);
  void summary(const nlohmann::ordered_json& summary);

 private:
  void line(const nlohmann::ordered_json& object);
  std::string path_;
  std::ofstream file_;
};

/// A bar that is drawn again in place on a terminal; else some twenty plain lines in all.
class Progress {
 public:
  explicit Progress(int64_t steps);
  void show(const StepMetrics& metrics);

 private:
  int64_t steps_;
  bool terminal_;
};

}  // namespace trainer
