// Finds a host that asks for clipping by a norm and never has the engine do it: the step is the host's, so
// `gradient.clip_norm` takes effect by a call of the host alone.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plugin/engine/log_function.hpp"

namespace fsdp2 {

class Unit;

class ClipCheck {
 public:
  /// Without a norm, or a log, there is nothing to find.
  ClipCheck(std::optional<double> clip_norm, LogFunction log);

  /// Notes what shards hold: at the end of backward, and after each call of ours that changes them. Costs a read of all
  /// shards, until the first step or the first clipping.
  void record(std::span<const std::weak_ptr<Unit>> units);
  /// Whether there is anything to compare with.
  [[nodiscard]] bool is_due() const { return !records_.empty(); }
  /// Warns, once, where shards have changed since: an optimizer has stepped. (Contents, since some optimizers write
  /// behind version counters.) Local.
  void verify();
  /// The host clips by a norm, or is done: there is nothing to find any more.
  void end();

 private:
  struct Record {
    at::Tensor shard;
    uint64_t hash = 0;
  };

  std::optional<double> clip_norm_;  // unset once it is over
  LogFunction log_;
  std::vector<Record> records_;
};

}  // namespace fsdp2
