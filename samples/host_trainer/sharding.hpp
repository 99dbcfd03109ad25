// All that this host does with the plugin.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "samples/host_trainer/command_line.hpp"
#include "samples/host_trainer/config.hpp"
#include "samples/host_trainer/rank_group.hpp"

namespace trainer {

/// Counters since the module was sharded.
struct ShardingCounters {
  int64_t all_gather_bytes = 0;
  int64_t reduce_scatter_bytes = 0;
  int64_t unsharded_peak_bytes = 0;
  int64_t shard_bytes = 0;
  int64_t parameter_bytes = 0;
  int64_t planned_peak_bytes = 0;
  int64_t units = 0;
};

class Sharding {
 public:
  /// Loads the plugin and the table [fsdp]. Its remarks are printed where `speaks`.
  Sharding(const CommandLine& options, const Config& config, bool speaks);
  ~Sharding();
  Sharding(Sharding&&) noexcept;
  Sharding& operator=(Sharding&&) noexcept;

  /// What each of `world` ranks would hold. Needs no ranks.
  std::string plan(const torch::jit::Module& module, int64_t world, int64_t ranks_per_node);
  void shard(torch::jit::Module& module, const RankGroup& group);
  /// `gradient.clip_norm`, which another host's file may have set.
  [[nodiscard]] std::optional<double> clip_norm() const;
  /// Clips by it, if it is set. `whole`: parameters that are in no shard, with the same gradients on every rank; they
  /// count as well.
  void clip_gradients(const std::vector<at::Tensor>& whole);
  /// The shards, for an optimizer.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] ShardingCounters counters() const;
  /// The first line of the plan: "fsdp2.full_shard, layout ragged, 2 ranks (1 x 2)".
  [[nodiscard]] std::string strategy() const;
  /// Makes the module plain again.
  void detach();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainer
