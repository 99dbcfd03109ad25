#include "tests/comm/forked_ranks.hpp"

#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace fsdp2::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Rank {
  pid_t process = -1;
  int reports = -1;
  bool open = true;
  std::string text;
};

// The first byte says that the body came to its end; what follows is what it threw.
[[noreturn]] void run_body(int rank, int reports, const std::function<void(int)>& body) {
  std::string report = "+";
  try {
    at::set_num_threads(1);
    body(rank);
  } catch (const std::exception& error) {
    report += *error.what() != '\0' ? error.what() : "an exception without a text";
  }
  const ssize_t written = write(reports, report.data(), report.size());
  _exit(written == static_cast<ssize_t>(report.size()) ? 0 : 3);
}

void read_reports(std::vector<Rank>& ranks, Clock::time_point deadline) {
  for (;;) {
    std::vector<pollfd> open;
    for (Rank& rank : ranks) {
      if (rank.open) open.push_back({rank.reports, POLLIN, 0});
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (open.empty() || left <= 0 || poll(open.data(), open.size(), static_cast<int>(left)) <= 0) return;
    for (Rank& rank : ranks) {
      for (const pollfd& one : open) {
        if (one.fd != rank.reports || one.revents == 0) continue;
        char buffer[4096];
        const ssize_t size = read(rank.reports, buffer, sizeof(buffer));
        if (size > 0) rank.text.append(buffer, static_cast<size_t>(size));
        rank.open = size > 0;
      }
    }
  }
}

std::string outcome_of(const Rank& rank, bool killed, int status) {
  if (!rank.text.empty()) return rank.text.substr(1);
  if (killed) return "was not done in time";
  if (WIFSIGNALED(status)) return std::string("was ended by signal ") + strsignal(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Outcomes run_ranks(int world, double limit_s, const std::function<void(int rank)>& body) {
  std::vector<Rank> ranks(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) {
    int pipe_ends[2];
    require(pipe(pipe_ends) == 0, "pipe");
    const pid_t process = fork();
    require(process >= 0, "fork");
    if (process == 0) {
      for (const Rank& other : ranks) close(other.reports);
      close(pipe_ends[0]);
      run_body(r, pipe_ends[1], body);
    }
    close(pipe_ends[1]);
    ranks[static_cast<size_t>(r)].process = process;
    ranks[static_cast<size_t>(r)].reports = pipe_ends[0];
  }
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  read_reports(ranks, Clock::now() + limit);
  Outcomes outcomes;
  for (const Rank& rank : ranks) {
    if (rank.open) kill(rank.process, SIGKILL);
    int status = 0;
    waitpid(rank.process, &status, 0);
    close(rank.reports);
    outcomes.push_back(outcome_of(rank, rank.open, status));
  }
  return outcomes;
}

std::string describe(const Outcomes& outcomes) {
  std::string text;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (!outcomes[r].empty()) text += "rank " + std::to_string(r) + ": " + outcomes[r] + "\n";
  }
  return text;
}

void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

int free_port() {
  const int handle = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool good = bind(handle, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                    getsockname(handle, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(handle);
  require(good, "no free port");
  return ntohs(address.sin_port);
}

ScratchFolder::ScratchFolder() {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/fsdp2_comm_XXXXXX";
  require(mkdtemp(pattern.data()) != nullptr, "cannot make " + pattern);
  folder_ = pattern;
}

// Not std::filesystem::remove_all: LibTorch exports a copy of its own that crashes here.
ScratchFolder::~ScratchFolder() {
  if (DIR* folder = opendir(folder_.c_str())) {
    while (const dirent* entry = readdir(folder)) unlink(path(entry->d_name).c_str());
    closedir(folder);
  }
  rmdir(folder_.c_str());
}

}  // namespace fsdp2::testing
