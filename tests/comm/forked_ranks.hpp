// Ranks as forked processes for one short case. The process that forks runs no tensor operation itself: LibTorch's
// threads do not survive a fork.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace fsdp2::testing {

/// How one rank ended: "" is good, else what it threw or how it died.
using Outcomes = std::vector<std::string>;

/// Runs `body(rank)` in `world` processes, one thread each. Those that are not done after `limit_s` are killed.
Outcomes run_ranks(int world, double limit_s, const std::function<void(int rank)>& body);

/// "rank 1: ..." a line for each bad one; "" if all are good.
std::string describe(const Outcomes& outcomes);

/// Throws std::runtime_error with that text.
void require(bool condition, const std::string& text);

/// A TCP port of this machine that nobody listens on now.
int free_port();

/// A new empty folder, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

}  // namespace fsdp2::testing
