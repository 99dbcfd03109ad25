// One rank's run, from loading the module to the closing summary.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <vector>

#include "samples/host_trainer/command_line.hpp"
#include "samples/host_trainer/config.hpp"
#include "samples/host_trainer/dataset.hpp"
#include "samples/host_trainer/metrics.hpp"
#include "samples/host_trainer/rank_group.hpp"
#include "samples/host_trainer/sharding.hpp"
#include "samples/host_trainer/summary.hpp"

namespace trainer {

/// Loads the module of [model] script, with errors that say where that stands.
torch::jit::Module load_module(const Config& config, at::Device device);

class Training {
 public:
  Training(const Config& config, const CommandLine& options, const RankEnvironment& environment);
  void run();

 private:
  void load();
  [[nodiscard]] std::string plan_in_short() const;
  StepMetrics step(int64_t number);
  /// One forward and backward pass of one rank's samples; the loss, before it is scaled.
  double pass(const std::vector<int64_t>& rows, double scale);
  /// Of parameters in `ignored_modules`: the engine leaves their gradients to the host.
  void average_ignored_gradients();
  /// As `gradient.clip_norm` of [fsdp] says, by the norm of all gradients.
  void clip_gradients();
  void evaluate(std::optional<Score>& score, const char* moment);
  void finish();
  [[nodiscard]] bool speaks() const { return group_->rank() == 0; }

  const Config& config_;
  const CommandLine& options_;
  std::unique_ptr<RankGroup> group_;
  int64_t world_;  // ranks whose batches make a step; with --unsharded all of them are this process's
  MetricsFile metrics_;
  Dataset data_;
  std::optional<Dataset> held_out_;
  RowOrder order_;
  torch::jit::Module module_;
  std::optional<Sharding> sharding_;  // unset with --unsharded
  std::optional<double> clip_norm_;
  std::vector<at::Tensor> ignored_;  // trainable parameters that are in no shard
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Summary summary_;
};

}  // namespace trainer
