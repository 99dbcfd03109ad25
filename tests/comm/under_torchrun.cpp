// A program for torchrun: makes two groups from its environment and reduces on each. Status 0 when the means are right.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "plugin/engine/c10d_environment.hpp"

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);
    const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (argc > 1 && (agent == nullptr || std::string(agent) != argv[1])) {
      std::fprintf(stderr, "this launch was meant to set TORCHELASTIC_USE_AGENT_STORE=%s\n", argv[1]);
      return 2;
    }
    for (int i = 0; i < 2; ++i) {
      auto group = fsdp2::communicator_from_environment("", at::kCPU, fsdp2::Timeout(30000));
      at::Tensor tensor = at::full({100}, static_cast<double>(group->rank()));
      group->all_reduce_mean(tensor)->wait();
      if (!at::equal(tensor, at::full({100}, (group->size() - 1) / 2.0))) return 3;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
