// The cases again, under MPI: `mpirun -n N test_ranks_mpi --models FOLDER [GoogleTest's options]`. Rank and size are
// MPI's, and engines talk over it by callbacks. Cases in which a rank must die are not for a job that dies with it.
#include <ATen/Parallel.h>
#include <fsdp2/mpi.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <vector>

#include "plugin/abi/callback_communicator.hpp"
#include "tests/ranks/harness/rank_case.hpp"

namespace fsdp2::testing {
namespace {

int own_rank = 0;

/// Every rank's text, on rank 0.
std::vector<std::string> gather_texts(const std::string& own) {
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const int size = static_cast<int>(own.size());
  std::vector<int> sizes(static_cast<size_t>(world));
  MPI_Gather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<int> starts(sizes.size());
  for (size_t r = 1; r < sizes.size(); ++r) starts[r] = starts[r - 1] + sizes[r - 1];
  std::string all(own_rank == 0 ? static_cast<size_t>(starts.back() + sizes.back()) : 0, ' ');
  MPI_Gatherv(own.data(), size, MPI_CHAR, all.data(), sizes.data(), starts.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (size_t r = 0; own_rank == 0 && r < sizes.size(); ++r)
    texts.push_back(all.substr(static_cast<size_t>(starts[r]), static_cast<size_t>(sizes[r])));
  return texts;
}

/// The same path on every rank.
std::string new_scratch_folder() {
  static int folders = 0;
  long process = ::getpid();
  MPI_Bcast(&process, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  const auto folder = std::filesystem::temp_directory_path() /
                      ("ranks-mpi-" + std::to_string(process) + "-" + std::to_string(folders++));
  std::filesystem::create_directories(folder);
  MPI_Barrier(MPI_COMM_WORLD);
  return folder.string();
}

extern "C" void out_of_time(int /*signal*/) {
  const std::string text = "rank " + std::to_string(own_rank) + ": the case did not end within its time\n";
  static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()));
  ::_exit(3);  // mpirun ends the others
}

class MpiRankTest : public ::testing::Test {
 public:
  explicit MpiRankTest(const RankCase& rank_case) : case_(rank_case) {}
  void TestBody() override {
    const std::string scratch = new_scratch_folder();
    std::vector<std::unique_ptr<MpiCommunicator>> groups;  // outlive the engines of the case
    ::alarm(static_cast<unsigned>(case_.limit_s));
    std::string text;
    {
      const Connect connect = [&](RankContext& /*context*/, const std::string& /*name*/, double timeout_s) {
        groups.push_back(std::make_unique<MpiCommunicator>(MPI_COMM_WORLD));
        return std::make_shared<CallbackCommunicator>(groups.back()->table(), timeout_from_seconds(timeout_s));
      };
      RankContext context(own_rank, pool_world(), scratch, connect);
      text = run_case(case_, context);
    }
    const std::vector<std::string> texts = gather_texts(text);
    ::alarm(0);
    for (size_t r = 0; r < texts.size(); ++r) {
      if (!texts[r].empty()) {
        ADD_FAILURE_AT(case_.file, case_.line) << "rank " << r << " of " << texts.size() << ": " << texts[r];
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (own_rank != 0) return;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(scratch, ignored)) ::unlink(entry.path().c_str());
    ::rmdir(scratch.c_str());
  }

 private:
  const RankCase& case_;
};

int run_all(int argc, char** argv) {
  int threads = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &threads);
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  pool_world() = world;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--models") == 0) models_folder() = argv[i + 1];
  }
  if (models_folder().empty()) {
    std::cerr << "usage: mpirun -n N " << argv[0] << " --models FOLDER\n";
    MPI_Finalize();
    return 2;
  }
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  std::signal(SIGALRM, out_of_time);
  ::testing::InitGoogleTest(&argc, argv);
  if (own_rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  for (const RankCase& rank_case : rank_cases()) {
    const auto& worlds = rank_case.worlds;
    if (rank_case.judge || std::find(worlds.begin(), worlds.end(), pool_world()) == worlds.end()) continue;
    ::testing::RegisterTest(rank_case.topic.c_str(), rank_case.name.c_str(), nullptr, nullptr, rank_case.file,
                            rank_case.line, [&rank_case]() -> ::testing::Test* { return new MpiRankTest(rank_case); });
  }
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}

}  // namespace
}  // namespace fsdp2::testing

int main(int argc, char** argv) {
  return fsdp2::testing::run_all(argc, argv);
}
