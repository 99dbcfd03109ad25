#include "samples/host_trainer/memory.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <fstream>

namespace trainer {
namespace {

/// A line of /proc/self/status in bytes, or 0.
int64_t status_line(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word != name + ':') continue;
    int64_t kilobytes = 0;
    file >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

int64_t resident_bytes() {
  return status_line("VmRSS");
}

int64_t peak_resident_bytes() {
  if (const int64_t bytes = status_line("VmHWM")) return bytes;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

void reset_peak_resident_bytes() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

}  // namespace trainer
