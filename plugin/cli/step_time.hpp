// How long a step takes, from what the machine is said to do. An estimate: two queues, one that computes and one that
// communicates, and a unit that waits for what it needs.
#pragma once
#include <cstdint>
#include <optional>

#include "registry/module_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2::cli {

struct Machine {
  int64_t ranks_per_node = 1;
  double node_bandwidth = 0;    // bytes a second that a rank sends inside its node
  double network = 0;           // bytes a second that a node sends to others; without use on one node
  double latency = 0;           // seconds that a collective takes beside its bytes
  std::optional<double> flops;  // a second and rank, as reached; unset: computing takes no time
  double tokens = 0;            // a rank and step: each multiplies every matrix once
};

/// Seconds of one step.
struct StepTime {
  double computing = 0;
  double communicating = 0;
  double waiting = 0;  // of computing for communication: what is not hidden
  double total = 0;
};

/// Forward multiplies and adds once for each element of a matrix and token, backward twice (once where the matrix is
/// frozen, none where nothing before it trains either); what has one dimension, and the matrices of modules of class
/// Embedding, count nothing. A collective sends at the rate of its slowest link; groups of ranks that meet on one
/// node's network share it.
StepTime step_time(const Plan& plan, const ModuleTree& tree, const Machine& machine);

}  // namespace fsdp2::cli
