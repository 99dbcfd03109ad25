// The communicator over c10d. Gloo has collectives of its own (gloo_communicator.hpp); NCCL and every other c10d
// backend use their standard ones, here.
#pragma once
#include <c10/core/DeviceType.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "plugin/engine/communicator.hpp"
#include "plugin/engine/failure_reports.hpp"

namespace c10d {
class ProcessGroup;
}

namespace fsdp2 {

/// How long one wait may last; zero: as long as the group itself allows. NCCL always keeps to its group's own time.
using Timeout = std::chrono::milliseconds;

/// Seconds as options hold them. Zero, negative and not-a-number mean "as the group allows".
Timeout timeout_from_seconds(double seconds);

class C10dCommunicator : public Communicator {
 public:
  /// Keeps a reference to the group. Throws Error (kInvalidArgument) for null. No communication. `store`: through which
  /// its ranks have met, where it is known; `group` is its name among others in that store. `world_rank`: of this
  /// process among all ranks, where the group is a part of them; -1: its rank in the group.
  static std::shared_ptr<Communicator> from_backend(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout,
                                                    c10::intrusive_ptr<c10d::Store> store = {},
                                                    const std::string& group = "", int64_t world_rank = -1);
  /// The group's backend for tensors on `device`; kInvalidArgument when it has none. Keeps the group alive.
  static std::shared_ptr<Communicator> from_process_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                          c10::DeviceType device, Timeout timeout,
                                                          int64_t world_rank = -1);

  [[nodiscard]] int64_t rank() const override;
  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] int64_t world_rank() const override { return world_rank_; }
  [[nodiscard]] std::string name() const override;
  void announce(std::string_view /*purpose*/) override {}
  [[nodiscard]] std::string whereabouts(const std::string& own) noexcept override;
  std::unique_ptr<Request> all_gather(at::Tensor output, at::Tensor input) override;
  std::unique_ptr<Request> reduce_scatter(at::Tensor output, at::Tensor input, double divisor) override;
  std::unique_ptr<Request> all_reduce(at::Tensor tensor, double divisor) override;
  std::unique_ptr<Request> broadcast(at::Tensor tensor) override;
  /// By the backend's own split.
  std::shared_ptr<Communicator> split(const std::vector<int64_t>& members) override;

 protected:
  C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout);
  /// As a part of `whole`: with its time, store and rank in messages.
  C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, const C10dCommunicator& whole);

  /// Runs `start`, which begins a collective and returns what its wait has to do. Failures of both become errors that
  /// name this rank and the operation.
  std::unique_ptr<Request> request(const char* operation, int64_t bytes,
                                   const std::function<std::function<void()>()>& start) const;

  // NOLINTBEGIN(*-non-private-member-variables-in-classes): one small family of classes
  c10::intrusive_ptr<c10d::Backend> backend_;
  Timeout timeout_;
  // NOLINTEND(*-non-private-member-variables-in-classes)

 private:
  int64_t world_rank_;
  c10::intrusive_ptr<c10d::Store> store_;  // through which the ranks have met, where it is known
  int splits_ = 0;
  std::optional<FailureReports> reports_;
  c10::intrusive_ptr<torch::CustomClassHolder> owner_;  // the process group that the backend came from, kept alive
};

}  // namespace fsdp2
