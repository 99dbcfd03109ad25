// Finds the commonest mistake of a host: changing gradients or shards between the end of backward and the optimizer's
// step, above all averaging gradients that the engine has averaged already. Only the contents tell: a transport writes
// behind autograd's back.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugin/engine/communicator.hpp"

namespace fsdp2 {

class Unit;

class StepCheck {
 public:
  /// `steps`: of how many optimizer steps to look at the gradients; each look costs a read of all gradients and shards,
  /// and a collective of a few bytes.
  explicit StepCheck(int64_t steps) : left_(steps) {}

  /// Notes what gradients and shards hold: at the end of backward, and after each call of ours that changes them.
  void record(std::span<const std::weak_ptr<Unit>> units);
  void forget() { records_.clear(); }
  /// Whether there is anything to compare with.
  [[nodiscard]] bool is_due() const { return !records_.empty(); }
  /// Compares gradients, and shards as well where `with_shards` (before the optimizer's step). Throws Error
  /// (kFailedPrecondition) on every rank where one finds a difference. The record is used up once an optimizer has
  /// changed a shard of any rank. Collective.
  void verify(Communicator& communicator, bool with_shards);

 private:
  struct Record {
    std::string name;
    at::Tensor gradient;  // kept, for hosts that let go of it before the next forward; undefined: there was none
    at::Tensor shard;
    uint64_t gradient_hash = 0;
    uint64_t shard_hash = 0;
  };

  int64_t left_;
  std::vector<Record> records_;
};

}  // namespace fsdp2
