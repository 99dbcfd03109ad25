// What one rank holds while it trains, by the plan: everything but activations and what libraries take for themselves.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/plan.hpp"

namespace fsdp2 {

/// An optimizer of element-wise state, as LibTorch's: so many tensors of a parameter's shape and dtype.
struct OptimizerState {
  std::string_view name;
  int64_t tensors;
};

/// "adamw", "adam", "sgd", "sgd_momentum", "rmsprop", "adagrad", "none".
const OptimizerState* find_optimizer_state(std::string_view name);
std::vector<std::string_view> optimizer_names();

/// Bytes of one rank: of parameters and gradients every rank has the same; of optimizer state the rank that owns most
/// (among more than 4096 ranks: its padding counted too).
struct RankMemory {
  int64_t parameters = 0;  // shards, padding included
  int64_t gradients = 0;   // shards of them
  int64_t optimizer = 0;
  int64_t unsharded_in_forward = 0;   // the most that full parameters take beside the shards
  int64_t unsharded_in_backward = 0;  // the same, with the full gradients that are not reduced yet
  int64_t forward_peak = 0;           // with gradients set to none before it
  int64_t backward_peak = 0;

  [[nodiscard]] int64_t at_rest() const { return parameters + gradients + optimizer; }
  [[nodiscard]] int64_t peak() const { return forward_peak > backward_peak ? forward_peak : backward_peak; }
};

RankMemory rank_memory(const Plan& plan, const OptimizerState& optimizer);

}  // namespace fsdp2
