// Groups made from the environment variables: what each fault says, and that the ranks meet. How each launcher's
// variables are read: tests/unit/test_launch_environment.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "plugin/engine/c10d_environment.hpp"
#include "registry/error.hpp"
#include "tests/comm/forked_ranks.hpp"

namespace fsdp2::testing {
namespace {

using Variables = std::map<std::string, std::string>;

void set_environment(const Variables& variables) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
        "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "GLOO_SOCKET_IFNAME"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

Variables good(int rank, int world, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

/// What making a group says; no rank is started for a fault that the variables show.
std::string fault(const Variables& variables, const std::string& backend = "", c10::Device device = at::kCPU) {
  set_environment(variables);
  try {
    communicator_from_environment(backend, device, Timeout(2000));
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(Environment, FaultsOfTheVariablesAreInvalidArguments) {
  EXPECT_EQ(
      fault({}),
      "1: no launcher has started this process: RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK, PMI_RANK and "
      "SLURM_PROCID are not set. Start the program with torchrun, mpirun or srun, set RANK, WORLD_SIZE, MASTER_ADDR "
      "and MASTER_PORT, or give a communicator");
  EXPECT_EQ(fault({{"RANK", "0"}}),
            "1: the environment variable RANK is set, but WORLD_SIZE is not: a launcher sets both");
}

TEST(Environment, BackendsThatCannotServeAreRefused) {
  EXPECT_EQ(fault(good(0, 2, 29500), "mpi"), "1: unknown backend \"mpi\": expected \"gloo\" or \"nccl\"");
  EXPECT_EQ(fault(good(0, 2, 29500), "nccl"), "1: backend \"nccl\" cannot move the parameters, which are on cpu");
  EXPECT_EQ(fault(good(0, 2, 29500), "gloo", c10::Device(at::kCUDA, 0)),
            "1: backend \"gloo\" cannot move the parameters, which are on cuda:0");
}

TEST(Environment, AWorldOfOneNeedsNoAddress) {
  const auto outcomes = run_ranks(1, 30, [](int /*rank*/) {
    set_environment({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
    auto communicator = communicator_from_environment("", at::kCPU, Timeout(0));
    require(communicator->size() == 1 && communicator->rank() == 0 && communicator->name() == "gloo", "wrong group");
    at::Tensor tensor = at::ones({4});
    communicator->all_reduce(tensor, 1)->wait();
    require(at::equal(tensor, at::ones({4})), "wrong mean");
  });
  EXPECT_EQ(describe(outcomes), "");
}

void expect_mean(Communicator& communicator) {
  at::Tensor tensor = at::full({1000}, static_cast<double>(communicator.rank()));
  communicator.all_reduce(tensor, static_cast<double>(communicator.size()))->wait();
  require(at::equal(tensor, at::full({1000}, (communicator.size() - 1) / 2.0)), "wrong mean");
}

TEST(Environment, RanksMeetAtTheMaster) {
  const int port = free_port();
  const auto outcomes = run_ranks(4, 60, [&](int rank) {
    set_environment(good(rank, 4, port));
    expect_mean(*communicator_from_environment("gloo", at::kCPU, Timeout(30000)));
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Environment, OneProcessMakesSeveralGroupsOneAfterAnotherAndAtOnce) {
  const int port = free_port();
  const auto outcomes = run_ranks(2, 60, [&](int rank) {
    set_environment(good(rank, 2, port));
    for (int i = 0; i < 3; ++i) expect_mean(*communicator_from_environment("", at::kCPU, Timeout(30000)));
    auto first = communicator_from_environment("", at::kCPU, Timeout(30000));
    auto second = communicator_from_environment("", at::kCPU, Timeout(30000));
    expect_mean(*second);
    expect_mean(*first);
  });
  EXPECT_EQ(describe(outcomes), "");
}

/// Runs the ranks that do come; each must end with an error in which `wanted` follows the place where they meet.
void expect_no_meeting(const std::vector<int>& ranks, int world, const std::function<std::string(int)>& wanted) {
  const int port = free_port();
  const auto outcomes = run_ranks(static_cast<int>(ranks.size()), 30, [&](int process) {
    const int rank = ranks[static_cast<size_t>(process)];
    set_environment(good(rank, world, port));
    try {
      communicator_from_environment("", at::kCPU, Timeout(2000));
    } catch (const Error& error) {
      require(error.code() == ErrorCode::kCommunication && error.details().rank == rank, "wrong code or rank");
      const std::string start = "rank " + std::to_string(rank) + ": the " + std::to_string(world) +
                                " ranks did not meet at 127.0.0.1:" + std::to_string(port) + ": ";
      const std::string text = error.what();
      require(text.rfind(start, 0) == 0, text);
      require(text.find(wanted(rank)) != std::string::npos, text);
      return;
    }
    throw std::runtime_error("no error");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Environment, TheRankThatNeverComesIsNamed) {
  expect_no_meeting({0}, 2, [](int) { return "rank 1 of 2 did not come within 2 s"; });
}

TEST(Environment, TheRanksThatNeverComeAreNamed) {
  expect_no_meeting({0}, 12, [](int) { return "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of 12 did not come"; });
}

TEST(Environment, AMissingRankZeroIsNoticedByItsClients) {
  expect_no_meeting({1}, 2, [](int) { return "timed out"; });
}

}  // namespace
}  // namespace fsdp2::testing
