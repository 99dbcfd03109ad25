// A program for a launcher: makes groups from its environment and reduces on each.
//   under_launcher RANKS [restart]
// Status 0 when the means over RANKS ranks are right. With `restart` the last rank dies in the launcher's first
// attempt, after the ranks have met, and all must meet again in the second.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdio>
#include <exception>
#include <fsdp2/launch_environment.hpp>
#include <stdexcept>
#include <string>

#include "plugin/engine/c10d_environment.hpp"

namespace {

void reduce(int ranks) {
  auto group = fsdp2::communicator_from_environment("", at::kCPU, fsdp2::Timeout(20000));
  if (group->size() != ranks) throw std::runtime_error("a group of " + std::to_string(group->size()));
  at::Tensor tensor = at::full({100}, static_cast<double>(group->rank()));
  group->all_reduce(tensor, ranks)->wait();
  if (!at::equal(tensor, at::full({100}, (ranks - 1) / 2.0))) throw std::runtime_error("a wrong mean");
}

}  // namespace

int main(int argc, char** argv) {
  int rank = -1;
  try {
    const int ranks = std::stoi(argv[1]);
    const bool restarts = argc > 2;
    const auto environment = fsdp2::launch_environment();
    if (!environment) throw std::runtime_error("no launcher");
    rank = environment->rank;
    at::set_num_threads(1);
    for (int i = 0; i < 2; ++i) {
      reduce(ranks);
      if (restarts && environment->restart == 0 && rank == ranks - 1) {
        std::printf("rank %d of %d, attempt 0, leaves\n", rank, ranks);
        return 1;
      }
    }
    std::printf("rank %d of %d, attempt %d, %s\n", rank, ranks, environment->restart,
                environment->agent_keeps_store ? "the agent keeps the store" : "rank 0 keeps the store");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}
