// The communicator over a host's own transport (fsdp2_communicator in plugin.h): an all-gather, an all-to-all and a
// test, all of bytes. Sums are taken here, in rank order, so they have the bits that Gloo's have.
#pragma once
#include <fsdp2/plugin.h>

#include <memory>
#include <string>

#include "plugin/engine/c10d_communicator.hpp"
#include "plugin/engine/communicator.hpp"

namespace fsdp2 {

class ScratchBytes;

class CallbackCommunicator final : public Communicator {
 public:
  /// Throws Error (kInvalidArgument), naming the field, for a table that makes no sense. `timeout`: how long one wait
  /// may last; zero: for ever. `world_rank`: in the communicator that it is a part of, if any. No communication.
  CallbackCommunicator(const fsdp2_communicator& table, Timeout timeout, int64_t world_rank = -1);

  [[nodiscard]] int64_t rank() const override;
  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] int64_t world_rank() const override { return world_rank_; }
  [[nodiscard]] std::string name() const override { return name_; }
  void announce(std::string_view /*purpose*/) override {}  // the host's transport has no tags of ours
  std::unique_ptr<Request> all_gather(at::Tensor output, at::Tensor input) override;
  std::unique_ptr<Request> reduce_scatter(at::Tensor output, at::Tensor input, double divisor) override;
  std::unique_ptr<Request> all_reduce(at::Tensor tensor, double divisor) override;
  std::unique_ptr<Request> broadcast(at::Tensor tensor) override;
  /// By the table's own split.
  std::shared_ptr<Communicator> split(const std::vector<int64_t>& members) override;

 private:
  class Transfer;
  struct Link;

  std::string name_;
  int64_t world_rank_;
  std::shared_ptr<Link> link_;
  std::shared_ptr<ScratchBytes> sent_;
  std::shared_ptr<ScratchBytes> received_;
};

}  // namespace fsdp2
