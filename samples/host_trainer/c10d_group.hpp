// Ranks that talk over c10d: Gloo on the CPU, NCCL where each has a GPU.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <string>

#include "samples/host_trainer/rank_group.hpp"

namespace trainer {

class C10dGroup final : public RankGroup {
 public:
  /// Meets the other ranks; throws after `limit`, with the ranks that did not come. `backend` is "gloo", "nccl" or "":
  /// nccl where every rank of the machine has a GPU of its own.
  C10dGroup(const RankEnvironment& environment, const std::string& backend, std::chrono::milliseconds limit);

  [[nodiscard]] fsdp2::Ranks ranks() const override { return backend_; }

 private:
  at::Tensor all_reduce(at::Tensor tensor, const std::string& what) override;

  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace trainer
