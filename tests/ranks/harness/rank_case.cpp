#include "tests/ranks/harness/rank_case.hpp"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <utility>

#include "plugin/engine/c10d_communicator.hpp"

namespace fsdp2::testing {

RankContext::RankContext(int64_t rank, int64_t world, std::string scratch)
    : rank_(rank), world_(world), scratch_(std::move(scratch)) {}

std::string RankContext::model_path(const std::string& name) const {
  return models_folder() + "/" + name + ".pt";
}

std::shared_ptr<RecordingCommunicator> RankContext::new_communicator(double timeout_s) {
  auto store = c10::make_intrusive<c10d::FileStore>(scratch_path("store" + std::to_string(groups_++)), world_);
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  auto group =
      c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank_), static_cast<int>(world_), options);
  const auto communicator = C10dCommunicator::from_backend(group, timeout_from_seconds(timeout_s));
  // All are connected before one may leave again.
  communicator->all_reduce_mean(at::zeros({1}))->wait();
  return std::make_shared<RecordingCommunicator>(communicator);
}

double RankContext::sum(double value) {
  return sum(std::vector<double>{value})[0];
}

std::vector<double> RankContext::sum(std::vector<double> values) {
  if (!own_) own_ = new_communicator();
  at::Tensor tensor = at::tensor(values, at::kDouble);
  own_->all_reduce_mean(tensor)->wait();
  tensor.mul_(static_cast<double>(world_));
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
