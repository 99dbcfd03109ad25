#include "samples/host_trainer/children.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>

namespace trainer {
namespace {

/// What a rank sends when it fails. One write of at most PIPE_BUF bytes is never mixed with another's.
struct Report {
  int rank = 0;
  Clock::rep time = 0;
  char text[PIPE_BUF - 32] = {};
};
static_assert(sizeof(Report) <= PIPE_BUF);

void send_report(int pipe, int rank, const char* text) {
  Report report;
  report.rank = rank;
  report.time = Clock::now().time_since_epoch().count();
  // Of a long text the end: TorchScript puts its trace before the cause.
  const size_t length = std::strlen(text);
  const size_t most = sizeof(report.text) - 1;
  std::strncpy(report.text, length > most ? text + (length - most) : text, most);
  if (write(pipe, &report, sizeof(report)) != static_cast<ssize_t>(sizeof(report))) std::fprintf(stderr, "%s\n", text);
}

[[noreturn]] void run_child(int rank, pid_t parent, int pipe, const std::function<void()>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that is killed leaves nothing behind
  if (getppid() != parent) std::_Exit(1);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  int code = 0;
  try {
    body();
  } catch (const std::exception& e) {
    send_report(pipe, rank, e.what());
    code = 1;
  } catch (...) {
    send_report(pipe, rank, "an exception of unknown type");
    code = 1;
  }
  std::fflush(nullptr);
  // Without destructors: those of a broken process group wait for ranks that are gone.
  std::_Exit(code);
}

}  // namespace

Children::Children() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  read_end_ = ends[0];
  write_end_ = ends[1];
  fcntl(read_end_, F_SETFL, O_NONBLOCK);
}

Children::~Children() {
  kill_all();
  for (Child& child : children_)
    if (!child.status) waitpid(child.pid, nullptr, 0);
  close(read_end_);
  close(write_end_);
}

void Children::start(int rank, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid == 0) run_child(rank, parent, write_end_, body);
  children_.push_back({.rank = rank, .pid = pid, .status = std::nullopt, .report = {}});
}

void Children::poll(std::chrono::milliseconds time) {
  pollfd news{.fd = read_end_, .events = POLLIN, .revents = 0};
  ::poll(&news, 1, static_cast<int>(time.count()));
  // Ends first: a report that is read afterwards was sent by a rank that may have noticed the end.
  reap();
  take_reports();
}

void Children::take_reports() {
  Report report;
  while (read(read_end_, &report, sizeof(report)) == static_cast<ssize_t>(sizeof(report))) {
    Child& child = children_.at(static_cast<size_t>(report.rank));
    child.report = report.text[0] ? report.text : "an error without a text";
    child.failed_at = Clock::time_point(Clock::duration(report.time));
  }
}

void Children::reap() {
  for (Child& child : children_) {
    int status = 0;
    if (child.status || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.status = status;
    if (status != 0) child.failed_at = std::min(child.failed_at, Clock::now());
  }
}

void Children::kill_all() {
  for (const Child& child : children_)
    if (!child.status) kill(child.pid, SIGKILL);
}

bool Children::all_ended() const {
  return std::all_of(children_.begin(), children_.end(), [](const Child& child) { return child.status.has_value(); });
}

}  // namespace trainer
