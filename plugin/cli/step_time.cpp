#include "plugin/cli/step_time.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "registry/step_traffic.hpp"

namespace fsdp2::cli {
namespace {

/// Multiplications and additions of a unit a token.
struct UnitWork {
  double forward = 0;
  double backward = 0;
};

std::vector<UnitWork> work_of(const Plan& plan, const ModuleTree& tree) {
  std::map<std::string, const TreeParameter*> parameters;
  for (const TreeParameter& parameter : tree.parameters) parameters.emplace(parameter.names.front(), &parameter);
  std::vector<UnitWork> work(plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u) {
    for (const PlannedParameter& planned : plan.units[u].parameters) {
      const TreeParameter& parameter = *parameters.at(planned.name);
      if (parameter.shape.size() < 2) continue;
      // A tied matrix works wherever it is not looked up in.
      const auto uses = std::count_if(parameter.holders.begin(), parameter.holders.end(),
                                      [&](size_t holder) { return tree.modules[holder].class_name != "Embedding"; });
      const double flops = 2.0 * static_cast<double>(numel(planned.shape)) * static_cast<double>(uses);
      work[u].forward += flops;
      work[u].backward += parameter.trainable ? 2 * flops : flops;
    }
  }
  return work;
}

class Simulation {
 public:
  Simulation(const Plan& plan, const ModuleTree& tree, const Machine& machine)
      : plan_(plan), machine_(machine), traffic_(unit_traffic(plan, tree)), work_(work_of(plan, tree)) {}

  StepTime run() {
    run_pass(forward_order(plan_), Pass::kForward);
    run_pass(backward_order(plan_), Pass::kBackward);
    time_.total = std::max(computed_, communicated_);
    time_.waiting = time_.total - time_.computing;
    return time_;
  }

 private:
  void run_pass(const std::vector<size_t>& order, Pass pass) {
    const bool backward = pass == Pass::kBackward;
    const auto depth = static_cast<size_t>(backward ? plan_.prefetch_backward : plan_.prefetch_forward);
    std::vector<double> whole_at(plan_.units.size(), -1);
    const auto gather = [&](size_t u) {
      if (whole_at[u] >= 0) return;
      const CollectiveTraffic& traffic = backward ? traffic_[u].gather_in_backward : traffic_[u].gather_in_forward;
      const int64_t ranks = backward ? ranks_of_backward_gather(plan_, plan_.units[u]) : plan_.mesh.shard;
      whole_at[u] = communicate(traffic, ranks, 1);
    };
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t u = order[i];
      for (size_t next = i; next < order.size() && next <= i + depth; ++next) gather(order[next]);
      const double work = !backward ? work_[u].forward : traffic_[u].in_backward ? work_[u].backward : 0;
      const double seconds = machine_.flops ? work * machine_.tokens / *machine_.flops : 0;
      computed_ = std::max(computed_, whole_at[u]) + seconds;
      time_.computing += seconds;
      if (!backward) continue;
      communicate(traffic_[u].reduce_scatter, plan_.mesh.shard, 1);
      communicate(traffic_[u].all_reduce, plan_.mesh.replicate, plan_.mesh.shard);
    }
  }

  /// Starts where computing is now, behind what is on its way. Returns when it is done.
  double communicate(const CollectiveTraffic& traffic, int64_t ranks, int64_t stride) {
    if (traffic.calls == 0) return computed_;
    const double seconds = static_cast<double>(traffic.calls) * machine_.latency +
                           static_cast<double>(traffic.sent) / bandwidth(ranks, stride);
    communicated_ = std::max(communicated_, computed_) + seconds;
    time_.communicating += seconds;
    return communicated_;
  }

  /// Of a rank in a group of `ranks`, `stride` apart from one another.
  [[nodiscard]] double bandwidth(int64_t ranks, int64_t stride) const {
    const int64_t node = machine_.ranks_per_node;
    if (ranks * stride <= node) return machine_.node_bandwidth;
    // Of the group, so many are on a node, and as many groups as they leave room for share its network.
    const int64_t together = std::max<int64_t>(1, node / stride);
    const double share = machine_.network * static_cast<double>(together) / static_cast<double>(node);
    return std::min(machine_.node_bandwidth, share);
  }

  const Plan& plan_;
  const Machine& machine_;
  std::vector<UnitTraffic> traffic_;
  std::vector<UnitWork> work_;
  double computed_ = 0;
  double communicated_ = 0;
  StepTime time_;
};

}  // namespace

StepTime step_time(const Plan& plan, const ModuleTree& tree, const Machine& machine) {
  return Simulation(plan, tree, machine).run();
}

}  // namespace fsdp2::cli
