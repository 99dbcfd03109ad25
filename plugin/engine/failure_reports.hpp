// What every rank was in when a collective failed, left for one another in the store through which the ranks have met.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace fsdp2 {

class FailureReports {
 public:
  /// `store` may be null: then nothing is ever known of others. `group`: equal on all ranks of one communicator, and of
  /// no other in that store.
  FailureReports(c10::intrusive_ptr<c10d::Store> store, std::string group, int64_t rank, int64_t world);

  /// Leaves `own` for the others and returns what they have left: "rank 1 was in ..., rank 2 left no word ..."; ""
  /// without a store. Waits a moment for those that fail a little later, and no longer: the store itself may
  /// be gone. Once for each communicator and those split from it: later words would meet these. Does not throw.
  [[nodiscard]] std::string exchange(const std::string& own) const noexcept;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  int64_t rank_;
  int64_t world_;
  std::shared_ptr<std::atomic<bool>> told_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace fsdp2
