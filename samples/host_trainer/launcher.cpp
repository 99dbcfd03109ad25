#include "samples/host_trainer/launcher.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "samples/host_trainer/children.hpp"

namespace trainer {
namespace {

using namespace std::chrono_literals;

constexpr auto kGrace = 4s;  // for the others to fail by themselves, with their own words
/// How late the end of a process may be noticed, against the report of one that noticed it through a closed connection.
constexpr auto kSlack = 200ms;

volatile std::sig_atomic_t interrupted = 0;

/// A socket on a free port of the loopback device.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (socket_ < 0 || bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(socket_, 1024) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::system_error(errno, std::generic_category(), "a port for the ranks to meet");
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  [[nodiscard]] int socket_number() const { return socket_; }
  [[nodiscard]] uint16_t port() const { return port_; }

 private:
  int socket_;
  uint16_t port_ = 0;
};

std::string end_of(const Child& child) {
  const int status = child.status.value_or(0);
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const char* name = sigabbrev_np(number);
    return "killed by signal " + std::to_string(number) + " (SIG" + (name ? name : "?") + ", " + strsignal(number) +
           ")";
  }
  if (!child.report.empty()) return child.report;
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

/// The rank whose failure came first. Its neighbours may report the broken connection before its end is noticed.
const Child& first_failure(const std::vector<Child>& children) {
  auto moment = [](const Child& child) {
    const bool silent = child.status && WIFSIGNALED(*child.status) && child.report.empty();
    return child.failed_at == Clock::time_point::max() ? child.failed_at : child.failed_at - (silent ? kSlack : 0ms);
  };
  return *std::min_element(children.begin(), children.end(),
                           [&](const Child& a, const Child& b) { return moment(a) < moment(b); });
}

/// TorchScript puts its trace before the cause.
std::string cause_of(std::string report) {
  report.erase(report.find_last_not_of('\n') + 1);
  return report.substr(report.rfind('\n') + 1);  // all of it where it is one line
}

void explain(const Child& first, const std::vector<Child>& others) {
  const std::string text = end_of(first);
  const bool same = others.size() > 1 &&
                    std::all_of(others.begin(), others.end(), [&](const Child& child) { return child.report == text; });
  if (same) {
    std::fprintf(stderr, "fsdp2-train: %s\n  (all %zu ranks say the same)\n", text.c_str(), others.size());
    return;
  }
  const std::string cause = cause_of(text);
  std::fprintf(stderr, "fsdp2-train: rank %d died first: %s\n", first.rank, cause.c_str());
  if (cause != text) std::fprintf(stderr, "%s\n", text.c_str());
  for (const Child& child : others)
    if (&child != &first && child.failed())
      std::fprintf(stderr, "  then rank %d: %s\n", child.rank, cause_of(end_of(child)).c_str());
}

}  // namespace

int launch(int ranks, const std::function<void(const RankEnvironment&)>& body) {
  std::signal(SIGINT, [](int number) { interrupted = number; });
  std::signal(SIGTERM, [](int number) { interrupted = number; });
  Listener listener;
  Children children;
  for (int rank = 0; rank < ranks; ++rank) {
    RankEnvironment environment;
    environment.rank = environment.local_rank = rank;
    environment.world = environment.local_world = ranks;
    environment.master_port = listener.port();
    if (rank == 0) environment.listen_socket = listener.socket_number();
    children.start(rank, [&] {
      if (rank != 0) close(listener.socket_number());
      body(environment);
    });
  }

  std::optional<Clock::time_point> deadline;
  std::vector<Child> noticed;  // what there was before we killed anyone
  while (!children.all_ended()) {
    children.poll(10ms);
    if (interrupted) {
      children.kill_all();
      std::fprintf(stderr, "fsdp2-train: stopped by %s\n", strsignal(interrupted));
      return 128 + interrupted;
    }
    const bool failed =
        std::any_of(children.list().begin(), children.list().end(), [](const Child& c) { return c.failed(); });
    if (failed && !deadline) deadline = Clock::now() + kGrace;
    if (deadline && Clock::now() >= *deadline && noticed.empty()) {
      noticed = children.list();
      children.kill_all();
    }
  }
  if (noticed.empty()) noticed = children.list();
  const Child& first = first_failure(noticed);
  if (!first.failed()) return 0;
  explain(first, noticed);
  for (const Child& child : noticed)
    if (!child.status) std::fprintf(stderr, "  rank %d did not end by itself and was killed\n", child.rank);
  const int status = first.status.value_or(1 << 8);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 1;
}

}  // namespace trainer
