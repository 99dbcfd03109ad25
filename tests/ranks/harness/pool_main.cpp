// A program of rank tests: `test_x --world N --models FOLDER [GoogleTest's options]`.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>

#include "tests/ranks/harness/rank_case.hpp"
#include "tests/ranks/harness/rank_pool.hpp"

namespace fsdp2::testing {
namespace {

std::unique_ptr<RankPool>& pool() {
  static std::unique_ptr<RankPool> ranks;
  return ranks;
}

class RankTest : public ::testing::Test {
 public:
  explicit RankTest(const RankCase& rank_case) : case_(rank_case) {}
  void TestBody() override {
    const std::string faults =
        case_.judge ? case_.judge(RankPool(pool_world(), &case_).run(case_, 20)) : describe(pool()->run(case_));
    if (!faults.empty()) ADD_FAILURE_AT(case_.file, case_.line) << faults;
  }

 private:
  const RankCase& case_;
};

int run_all(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--world") == 0) pool_world() = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--models") == 0) models_folder() = argv[i + 1];
  }
  if (pool_world() < 1 || models_folder().empty()) {
    std::cerr << "usage: " << argv[0] << " --world N --models FOLDER\n";
    return 2;
  }
  ::testing::InitGoogleTest(&argc, argv);
  for (const RankCase& rank_case : rank_cases()) {
    if (std::find(rank_case.worlds.begin(), rank_case.worlds.end(), pool_world()) == rank_case.worlds.end()) continue;
    ::testing::RegisterTest(rank_case.topic.c_str(), rank_case.name.c_str(), nullptr, nullptr, rank_case.file,
                            rank_case.line, [&rank_case]() -> ::testing::Test* { return new RankTest(rank_case); });
  }
  pool() = std::make_unique<RankPool>(pool_world());
  const int result = RUN_ALL_TESTS();
  pool().reset();
  return result;
}

}  // namespace
}  // namespace fsdp2::testing

int main(int argc, char** argv) {
  // A rank that died shows as a missing report.
  ::signal(SIGPIPE, SIG_IGN);
  return fsdp2::testing::run_all(argc, argv);
}
