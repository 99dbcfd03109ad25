#include "tests/ranks/harness/rank_case.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <exception>
#include <sstream>
#include <utility>

#include "plugin/engine/c10d_communicator.hpp"

namespace fsdp2::testing {

RankContext::RankContext(int64_t rank, int64_t world, std::string scratch, Connect connect)
    : rank_(rank), world_(world), scratch_(std::move(scratch)), connect_(std::move(connect)) {}

std::string RankContext::model_path(const std::string& name) const {
  return models_folder() + "/" + name + ".pt";
}

std::shared_ptr<Communicator> connect_by_gloo(RankContext& context, const std::string& name, double timeout_s) {
  const auto store = c10::make_intrusive<c10d::FileStore>(context.scratch_path(name), context.world());
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(context.rank()),
                                                           static_cast<int>(context.world()), options);
  return C10dCommunicator::from_backend(group, timeout_from_seconds(timeout_s), store);
}

std::shared_ptr<RecordingCommunicator> RankContext::new_communicator(double timeout_s) {
  const auto communicator = connect_(*this, "store" + std::to_string(groups_++), timeout_s);
  // All are connected before one may leave again.
  communicator->all_reduce(at::zeros({1}), 1)->wait();
  return std::make_shared<RecordingCommunicator>(communicator);
}

std::string run_case(const RankCase& rank_case, RankContext& context) {
  std::ostringstream text;
  ::testing::TestPartResultArray results;
  try {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    rank_case.run(context);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    text << "threw: " << what.substr(0, what.find("\nException raised from")) << "\n";  // without LibTorch's own stack
  } catch (...) {
    text << "threw something that is not a std::exception\n";
  }
  for (int i = 0; i < results.size(); ++i) {
    const auto& result = results.GetTestPartResult(i);
    if (!result.failed()) continue;
    text << (result.file_name() ? result.file_name() : "") << ":" << result.line_number() << ": " << result.message()
         << "\n";
  }
  return text.str();
}

double RankContext::sum(double value) {
  return sum(std::vector<double>{value})[0];
}

std::vector<double> RankContext::sum(std::vector<double> values) {
  if (!own_) own_ = new_communicator();
  at::Tensor tensor = at::tensor(values, at::kDouble);
  own_->all_reduce(tensor, 1)->wait();
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

void RankContext::barrier() {
  sum(0.0);
}

std::vector<RankCase>& rank_cases() {
  static std::vector<RankCase> cases;
  return cases;
}

bool add_case(const char* file, int line, std::string topic, std::string name, CaseFunction run,
              std::vector<int64_t> worlds, int limit_s, Judge judge) {
  rank_cases().push_back(
      {std::move(topic), std::move(name), std::move(run), std::move(worlds), limit_s, file, line, std::move(judge)});
  return true;
}

std::string& models_folder() {
  static std::string folder;
  return folder;
}

int64_t& pool_world() {
  static int64_t world = 1;
  return world;
}

}  // namespace fsdp2::testing
