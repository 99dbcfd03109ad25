#include "samples/host_trainer/metrics.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "samples/host_trainer/memory.hpp"

namespace trainer {

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_.open(path, std::ios::trunc);
  if (!file_) throw std::runtime_error("--metrics: " + path + " cannot be written.");
}

void MetricsFile::step(const StepMetrics& m) {
  line({{"step", m.step},
        {"loss", m.loss},
        {"step_ms", m.step_ms},
        {"samples_per_s", m.samples_per_s},
        {"all_gather_bytes", m.all_gather_bytes},
        {"reduce_scatter_bytes", m.reduce_scatter_bytes}});
}

void MetricsFile::summary(const nlohmann::ordered_json& summary) {
  line({{"summary", summary}});
}

void MetricsFile::line(const nlohmann::ordered_json& object) {
  if (!file_.is_open()) return;
  file_ << object.dump() << std::endl;  // flushed: a run that is watched, or killed, has its lines
  if (!file_) throw std::runtime_error("--metrics: " + path_ + " cannot be written any more (is the disk full?).");
}

Progress::Progress(int64_t steps) : steps_(steps), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::show(const StepMetrics& m) {
  const std::string numbers =
      fmt::format("{:>{}}/{}  loss {:.4f}  {:.1f} samples/s  {}", m.step, std::to_string(steps_).size(), steps_, m.loss,
                  m.samples_per_s, format_bytes(resident_bytes()));
  if (terminal_) {
    constexpr int64_t kWidth = 30;
    const auto done = static_cast<size_t>(kWidth * m.step / steps_);
    fmt::print("\r[{}{}] {}\x1b[K{}", std::string(done, '#'), std::string(kWidth - done, '-'), numbers,
               m.step == steps_ ? "\n" : "");
  } else if (m.step == 1 || m.step == steps_ || m.step % std::max<int64_t>(1, steps_ / 20) == 0) {
    fmt::print("step {}\n", numbers);
  }
  std::fflush(stdout);
}

}  // namespace trainer
