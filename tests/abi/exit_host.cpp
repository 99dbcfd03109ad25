// Hosts that end in awkward ways. exit_host <plugin> list|close|reopen|static_engine|thrown
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fsdp2/plugin.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/abi/tiny_model.hpp"
#include "tests/comm/forked_ranks.hpp"
#include "tests/comm/gloo_group.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kConfig = "[fsdp]\nwrap = { policy = \"every\" }\ndebug = { timeout_s = 60 }\n";
constexpr int kHostsOwnCode = 7;

struct Job {
  torch::jit::Module model;
  std::unique_ptr<fsdp2::Engine> engine;
};

// Destroyed after main has returned.
std::unique_ptr<Job> static_job;

void train_two_steps(Job& job) {
  for (int step = 0; step < 2; ++step) {
    const at::Tensor loss = job.model.forward({fsdp2::testing::fill({3, 16}, step)}).toTensor().square().mean();
    loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : job.engine->parameters()) {
      if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.1);
    }
  }
}

template <typename... Group>
std::unique_ptr<Job> trained_job(const char* plugin_path, const Group&... group) {
  const auto plugin = fsdp2::Plugin::load(plugin_path);
  auto job = std::make_unique<Job>(Job{fsdp2::testing::tiny_model(), nullptr});
  job->engine = std::make_unique<fsdp2::Engine>(plugin.shard(job->model, plugin.config_from_text(kConfig), group...));
  train_two_steps(*job);
  return job;
}

// One rank throws out of the scope that holds group, engine and model; main catches it and returns the host's own code.
int throwing_rank(const char* plugin_path, const std::string& store, int rank) {
  try {
    const auto group = fsdp2::testing::gloo_group(store, rank, 2);
    const auto job = trained_job(plugin_path, group);
    if (rank == 1) throw std::runtime_error("the host's own fault");
    train_two_steps(*job);
    train_two_steps(*job);
  } catch (const std::exception& error) {
    const char* expected = rank == 1 ? "the host's own fault" : "connection to rank 1";
    if (std::strstr(error.what(), expected) != nullptr) return kHostsOwnCode;
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  return 1;
}

// Forks before any thread of LibTorch has started.
int thrown(const char* plugin_path) {
  const fsdp2::testing::ScratchFolder scratch;
  pid_t ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = fork();
    if (ranks[rank] == 0) std::exit(throwing_rank(plugin_path, scratch.path("store"), rank));
  }
  int first = -1;
  int second = -1;
  wait(&first);
  const auto begin = Clock::now();
  wait(&second);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (const int status : {first, second}) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kHostsOwnCode) {
      std::fprintf(stderr, "a rank ended with wait status %d\n", status);
      return 1;
    }
  }
  if (seconds > 10) std::fprintf(stderr, "the other rank took %.1f s\n", seconds);
  return seconds > 10 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mode = argv[2];
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  if (mode == "list") {
    // Neither closed nor shut down.
    static const auto& plugin = *new fsdp2::Plugin(fsdp2::Plugin::load(argv[1]));
    return plugin.strategies().empty() ? 1 : 0;
  }
  if (mode == "close" || mode == "reopen") {
    for (int i = 0; i < (mode == "close" ? 1 : 3); ++i) {
      if (fsdp2::Plugin::load(argv[1]).strategies().empty()) return 1;
    }
    return 0;
  }
  if (mode == "static_engine") {
    static_job = trained_job(argv[1]);
    return 0;
  }
  return mode == "thrown" ? thrown(argv[1]) : 2;
}
