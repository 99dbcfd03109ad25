#include "tests/ranks/harness/rank_pool.hpp"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <sstream>
#include <stdexcept>

namespace fsdp2::testing {
namespace {

using Clock = std::chrono::steady_clock;

/// Sanitizers make cases slow, not wrong.
double time_factor() {
  const char* factor = std::getenv("FSDP2_TEST_TIME_FACTOR");
  return factor != nullptr ? std::atof(factor) : 1;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count <= 0) return;  // the reader is gone; it will be noticed by its missing report
    done += static_cast<size_t>(count);
  }
}

/// One line without its end; empty when the writer is gone.
std::string read_line(int file) {
  std::string line;
  for (char c = 0; ::read(file, &c, 1) == 1;) {
    if (c == '\n') return line;
    line += c;
  }
  return {};
}

std::string scratch_folder(int64_t run) {
  return (std::filesystem::temp_directory_path() / ("ranks-" + std::to_string(::getppid()) + "-" + std::to_string(run)))
      .string();
}

}  // namespace

RankPool::RankPool(int64_t world, const RankCase* one_case) : world_(world), one_case_(one_case) {
  start();
}

RankPool::~RankPool() {
  stop();
}

void RankPool::start() {
  ranks_.resize(static_cast<size_t>(world_));
  for (int64_t r = 0; r < world_; ++r) {
    int commands[2];
    int reports[2];
    if (::pipe2(commands, O_CLOEXEC) != 0 || ::pipe2(reports, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error("no fork");
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Ends of the earlier ranks' pipes would keep those open after their owner died.
      for (const Rank& other : ranks_) {
        if (other.commands >= 0) ::close(other.commands);
        if (other.reports >= 0) ::close(other.reports);
      }
      ::close(commands[1]);
      ::close(reports[0]);
      serve(r, commands[0], reports[1]);
    }
    ::close(commands[0]);
    ::close(reports[1]);
    ranks_[static_cast<size_t>(r)] = {process, commands[1], reports[0], {}};
  }
}

void RankPool::stop() {
  for (Rank& rank : ranks_) {
    if (rank.process <= 0) continue;
    ::kill(rank.process, SIGKILL);
    ::waitpid(rank.process, nullptr, 0);
    rank.process = -1;
  }
  for (const Rank& rank : ranks_) {
    ::close(rank.commands);
    ::close(rank.reports);
  }
  ranks_.clear();
}

void RankPool::serve(int64_t rank, int commands, int reports) const {
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  for (std::string line = read_line(commands); !line.empty(); line = read_line(commands)) {
    std::istringstream words(line);
    size_t index = 0;
    int64_t run = 0;
    words >> index >> run;
    const RankCase& rank_case = one_case_ ? *one_case_ : rank_cases().at(index);
    std::string text;
    {
      RankContext context(rank, world_, scratch_folder(run));
      text = run_case(rank_case, context);
    }
    write_all(reports, std::to_string(text.size()) + "\n" + text);
  }
  ::_exit(0);
}

/// Reads what has come; `ended` when the rank has reported or died.
bool RankPool::take_report(Rank& rank, Outcome& outcome, bool& ended) {
  char buffer[4096];
  const ssize_t count = ::read(rank.reports, buffer, sizeof buffer);
  if (count > 0) {
    rank.received.append(buffer, static_cast<size_t>(count));
    const size_t end = rank.received.find('\n');
    if (end == std::string::npos) return true;
    const size_t size = std::stoul(rank.received.substr(0, end));
    if (rank.received.size() < end + 1 + size) return true;
    outcome.kind = Outcome::Kind::kReported;
    outcome.text = rank.received.substr(end + 1, size);
    rank.received.clear();
    ended = true;
    return outcome.text.empty();
  }
  int status = 0;
  ::waitpid(rank.process, &status, 0);
  rank.process = -1;
  outcome.kind = Outcome::Kind::kDied;
  if (WIFSIGNALED(status)) {
    outcome.signal = WTERMSIG(status);
    outcome.text = "died of signal " + std::to_string(outcome.signal) + " (" + ::strsignal(outcome.signal) + ")";
  } else {
    outcome.text = "exited with status " + std::to_string(WEXITSTATUS(status));
  }
  ended = true;
  return false;
}

std::vector<Outcome> RankPool::run(const RankCase& rank_case, double grace_s) {
  const auto began = Clock::now();
  const int64_t run = runs_++;
  const std::string scratch =
      (std::filesystem::temp_directory_path() / ("ranks-" + std::to_string(::getpid()) + "-" + std::to_string(run)))
          .string();
  std::filesystem::create_directories(scratch);
  const size_t index = one_case_ ? 0 : static_cast<size_t>(&rank_case - rank_cases().data());
  for (const Rank& rank : ranks_) write_all(rank.commands, std::to_string(index) + " " + std::to_string(run) + "\n");

  std::vector<Outcome> outcomes(ranks_.size());
  std::vector<bool> ended(ranks_.size(), false);
  double deadline = rank_case.limit_s * time_factor();
  for (;;) {
    std::vector<pollfd> files;
    std::vector<size_t> owners;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ended[r]) continue;
      files.push_back({ranks_[r].reports, POLLIN, 0});
      owners.push_back(r);
    }
    const double left = deadline - seconds_since(began);
    if (files.empty() || left <= 0) break;
    if (::poll(files.data(), files.size(), static_cast<int>(left * 1000) + 1) <= 0) continue;
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i].revents == 0) continue;
      bool done = false;
      const size_t r = owners[i];
      if (!take_report(ranks_[r], outcomes[r], done)) {
        deadline = std::min(deadline, seconds_since(began) + grace_s);
      }
      if (!done) continue;
      ended[r] = true;
      outcomes[r].seconds = seconds_since(began);
    }
  }
  bool good = true;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (!ended[r]) {
      outcomes[r].seconds = seconds_since(began);
      outcomes[r].text = "did not end within " + std::to_string(static_cast<int>(outcomes[r].seconds)) + " s";
    }
    good = good && outcomes[r].good();
  }
  if (!good && !one_case_) {
    stop();  // a rank that failed half-way may have left anything behind
    start();
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(scratch, ignored)) ::unlink(entry.path().c_str());
  ::rmdir(scratch.c_str());
  return outcomes;
}

std::string describe(const std::vector<Outcome>& outcomes) {
  std::ostringstream text;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (!outcomes[r].good()) text << "rank " << r << " of " << outcomes.size() << ": " << outcomes[r].text << "\n";
  }
  return text.str();
}

}  // namespace fsdp2::testing
