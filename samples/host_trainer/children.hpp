// The processes of a launcher: forked, heard, reaped.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

using Clock = std::chrono::steady_clock;

struct Child {
  int rank = 0;
  pid_t pid = 0;
  std::optional<int> status;  // of waitpid, once it has ended
  std::string report;         // its error, in its own words
  Clock::time_point failed_at = Clock::time_point::max();

  [[nodiscard]] bool failed() const { return !report.empty() || (status && *status != 0); }
};

class Children {
 public:
  Children();
  /// Kills and reaps what is left.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Forks one. An exception that leaves `body` is its report.
  void start(int rank, const std::function<void()>& body);
  /// Waits up to `time` for news, then takes all reports and ends there are.
  void poll(std::chrono::milliseconds time);
  void kill_all();
  [[nodiscard]] bool all_ended() const;
  [[nodiscard]] const std::vector<Child>& list() const { return children_; }

 private:
  void take_reports();
  void reap();

  std::vector<Child> children_;
  int read_end_ = -1;
  int write_end_ = -1;
};

}  // namespace trainer
