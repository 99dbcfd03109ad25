// What survivors say when a rank is killed or does not answer, and which groups are refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <thread>

#include "plugin/engine/c10d_communicator.hpp"
#include "registry/error.hpp"
#include "tests/comm/forked_ranks.hpp"
#include "tests/comm/gloo_group.hpp"

namespace fsdp2::testing {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The error that `action` throws.
template <typename Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("no error was thrown");
}

void require_text(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, "expected \"" + part + "\" in: " + text);
}

enum class Kind { kAllGather, kReduceScatter, kAllReduce };

std::unique_ptr<Request> start(Communicator& communicator, Kind kind) {
  const int64_t world = communicator.size();
  switch (kind) {
    case Kind::kAllGather:
      return communicator.all_gather(at::zeros({world * 512}), at::zeros({512}));
    case Kind::kReduceScatter:
      return communicator.reduce_scatter(at::zeros({512}), at::zeros({world * 512}), world);
    default:
      return communicator.all_reduce(at::zeros({1024}), world);
  }
}

const char* name_of(Kind kind) {
  return kind == Kind::kAllGather ? "all_gather" : kind == Kind::kReduceScatter ? "reduce_scatter" : "all_reduce";
}

class Failures : public ::testing::TestWithParam<Kind> {};

TEST_P(Failures, SurvivorsNameThemselvesTheOperationAndTheLostRank) {
  const ScratchFolder scratch;
  const Kind kind = GetParam();
  const auto outcomes = run_ranks(2, 20, [&](int rank) {
    auto communicator = C10dCommunicator::from_backend(gloo_group(scratch.path("store"), rank, 2), Timeout(15000));
    start(*communicator, kind)->wait();
    if (rank == 1) kill(getpid(), SIGKILL);
    const auto begin = Clock::now();
    const Error error = error_of([&] { start(*communicator, kind)->wait(); });
    require(error.code() == ErrorCode::kCommunication, "wrong code");
    require(error.details().rank == 0, "the details do not name the rank");
    require_text(error.what(),
                 std::string("rank 0: ") + name_of(kind) + " of 4096 bytes failed: connection to rank 1: ");
    require(std::string(error.what()).find("/pytorch/") == std::string::npos, error.what());
    require(seconds_since(begin) < 5, "the loss was noticed late");
  });
  EXPECT_EQ(outcomes[0], "");
  EXPECT_EQ(outcomes[1], "was ended by signal Killed");
}

TEST_P(Failures, ARankThatDoesNotAnswerIsGivenUpAfterTheTimeout) {
  const ScratchFolder scratch;
  const Kind kind = GetParam();
  const auto outcomes = run_ranks(2, 30, [&](int rank) {
    auto communicator = C10dCommunicator::from_backend(gloo_group(scratch.path("store"), rank, 2), Timeout(1000));
    start(*communicator, kind)->wait();
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      return;
    }
    const auto begin = Clock::now();
    const Error error = error_of([&] { start(*communicator, kind)->wait(); });
    const double seconds = seconds_since(begin);
    require(error.code() == ErrorCode::kCommunication, "wrong code");
    require_text(error.what(),
                 std::string("rank 0: ") + name_of(kind) + " of 4096 bytes failed: connection to rank 1: ");
    require(seconds > 0.9 && seconds < 3, "gave up after " + std::to_string(seconds) + " s");
  });
  EXPECT_EQ(describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Every, Failures, ::testing::Values(Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Groups, ANullGroupIsRefused) {
  const Error backend = error_of([] { C10dCommunicator::from_backend(nullptr, Timeout(0)); });
  EXPECT_STREQ(backend.what(), "the communicator is null: no c10d::Backend was given");
  EXPECT_EQ(backend.code(), ErrorCode::kInvalidArgument);
  const Error group = error_of([] { C10dCommunicator::from_process_group(nullptr, at::kCPU, Timeout(0)); });
  EXPECT_STREQ(group.what(), "the communicator is null: no c10d::ProcessGroup was given");
}

TEST(Groups, AProcessGroupGivesItsBackendForTheDevice) {
  const ScratchFolder scratch;
  const auto outcomes = run_ranks(2, 30, [&](int rank) {
    auto store = c10::make_intrusive<c10d::FileStore>(scratch.path("group"), 2);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, 2);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                      gloo_group(scratch.path("store"), rank, 2));
    auto communicator = C10dCommunicator::from_process_group(group, at::kCPU, Timeout(0));
    group.reset();  // the communicator keeps it
    require(communicator->name() == "gloo" && communicator->rank() == rank && communicator->size() == 2, "wrong group");
    at::Tensor tensor = at::full({3}, static_cast<double>(rank));
    communicator->all_reduce(tensor, 2)->wait();
    require(at::equal(tensor, at::full({3}, 0.5)), "wrong mean");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Groups, AProcessGroupWithoutABackendForTheDeviceIsRefused) {
  const ScratchFolder scratch;
  const auto outcomes = run_ranks(1, 30, [&](int rank) {
    auto store = c10::make_intrusive<c10d::FileStore>(scratch.path("group"), 1);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, 1);
    const Error error = error_of([&] { C10dCommunicator::from_process_group(group, at::kCUDA, Timeout(0)); });
    require(error.code() == ErrorCode::kInvalidArgument, "wrong code");
    require_text(error.what(), "the process group has no backend for cuda tensors: ");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Timeouts, SecondsBecomeMilliseconds) {
  EXPECT_EQ(timeout_from_seconds(1.5), Timeout(1500));
  EXPECT_EQ(timeout_from_seconds(0.0001), Timeout(1));
  EXPECT_EQ(timeout_from_seconds(0), Timeout(0));
  EXPECT_EQ(timeout_from_seconds(-3), Timeout(0));
  EXPECT_EQ(timeout_from_seconds(NAN), Timeout(0));
  EXPECT_GT(timeout_from_seconds(INFINITY), Timeout(0));
}

}  // namespace
}  // namespace fsdp2::testing
