// The ranks of a job as this host sees them: its device, a c10d backend, and a few small collectives for numbers to
// print.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "samples/host_trainer/rank_environment.hpp"

namespace trainer {

class RankGroup {
 public:
  /// Meets the other ranks; throws after `limit`, with the ranks that did not come. `backend` is "gloo", "nccl" or "":
  /// nccl where every rank of the machine has a GPU of its own.
  RankGroup(const RankEnvironment& environment, const std::string& backend, std::chrono::milliseconds limit);

  [[nodiscard]] int rank() const { return environment_.rank; }
  [[nodiscard]] int world() const { return environment_.world; }
  [[nodiscard]] int local_world() const { return environment_.local_world; }
  [[nodiscard]] at::Device device() const { return device_; }
  [[nodiscard]] const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }

  /// Element by element over all ranks. `what` names the values where a rank is gone.
  std::vector<double> sum(const std::vector<double>& values, const std::string& what);
  /// Row r is rank r's.
  std::vector<std::vector<int64_t>> gather(const std::vector<int64_t>& values, const std::string& what);
  void barrier(const std::string& what);

 private:
  at::Tensor all_reduce(at::Tensor tensor, const std::string& what);

  RankEnvironment environment_;
  at::Device device_;
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace trainer
