// The ranks of a job as this host sees them: its device, how the plugin's engine reaches the others, and a few small
// collectives for numbers to print.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <fsdp2/plugin.hpp>
#include <memory>
#include <string>
#include <vector>

#include "samples/host_trainer/rank_environment.hpp"

namespace trainer {

class RankGroup {
 public:
  /// `backend`: "gloo", "nccl", "mpi", or "" = nccl where every rank of the machine has a GPU of its own, else gloo.
  /// Meets the other ranks; throws after `limit`, with the ranks that did not come.
  static std::unique_ptr<RankGroup> meet(const RankEnvironment& environment, const std::string& backend,
                                         std::chrono::milliseconds limit);
  virtual ~RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  [[nodiscard]] int rank() const { return environment_.rank; }
  [[nodiscard]] int world() const { return environment_.world; }
  [[nodiscard]] int local_world() const { return environment_.local_world; }
  [[nodiscard]] at::Device device() const { return device_; }
  /// For the plugin. Lives as long as this group.
  [[nodiscard]] virtual fsdp2::Ranks ranks() const = 0;

  /// Element by element over all ranks. `what` names the values where a rank is gone.
  std::vector<double> sum(const std::vector<double>& values, const std::string& what);
  /// Row r is rank r's.
  std::vector<std::vector<int64_t>> gather(const std::vector<int64_t>& values, const std::string& what);
  void barrier(const std::string& what);

 protected:
  explicit RankGroup(const RankEnvironment& environment) : environment_(environment) {}
  /// The sum over all ranks of a tensor of doubles or of int64.
  virtual at::Tensor all_reduce(at::Tensor tensor, const std::string& what) = 0;

  RankEnvironment environment_;
  at::Device device_ = at::kCPU;
};

}  // namespace trainer
