// Ranks as processes: forked before any thread of LibTorch starts, fed over pipes, killed and started again after a
// fault. The process that owns a pool runs no tensor operation, so it may fork at any time.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ranks/harness/rank_case.hpp"

namespace fsdp2::testing {

/// How one rank ended a case.
struct Outcome {
  enum class Kind { kReported, kDied, kHung } kind = Kind::kHung;
  std::string text;    // what it reported: faults, or nothing; or how it died
  int signal = 0;      // that killed it, if any
  double seconds = 0;  // from the start of the case
  [[nodiscard]] bool good() const { return kind == Kind::kReported && text.empty(); }
};

class RankPool {
 public:
  /// `one_case`: ranks know this case only; else rank_cases().
  explicit RankPool(int64_t world, const RankCase* one_case = nullptr);
  ~RankPool();
  RankPool(const RankPool&) = delete;
  RankPool& operator=(const RankPool&) = delete;

  /// Runs one case on all ranks. After a fault of one rank the others get `grace_s` seconds to end.
  std::vector<Outcome> run(const RankCase& rank_case, double grace_s = 5);

 private:
  struct Rank {
    pid_t process = -1;
    int commands = -1;
    int reports = -1;
    std::string received;
  };

  void start();
  void stop();
  [[noreturn]] void serve(int64_t rank, int commands, int reports) const;
  bool take_report(Rank& rank, Outcome& outcome, bool& ended);

  int64_t world_;
  const RankCase* one_case_;
  std::vector<Rank> ranks_;
  int64_t runs_ = 0;
};

/// The outcomes as one text for a person, empty if all are good.
std::string describe(const std::vector<Outcome>& outcomes);

}  // namespace fsdp2::testing
