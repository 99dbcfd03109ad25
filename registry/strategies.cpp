// The strategies of FSDP2, each a pure function, and the constant table of them.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "registry/error.hpp"
#include "registry/layout.hpp"
#include "registry/registry.hpp"
#include "registry/reshard.hpp"

namespace fsdp2 {
namespace {

/// The parameters of a unit, laid out in its buffers.
PlannedUnit plan_unit(const ModuleTree& tree, const SelectedUnit& selected, Layout kind, int64_t shard_ranks) {
  std::vector<LayoutParameter> parameters;
  for (const size_t index : selected.parameters) {
    const TreeParameter& parameter = tree.parameters[index];
    if (parameter.shape.empty()) throw no_dimensions_error(tree, parameter);
    parameters.push_back({parameter.shape, parameter.dtype, parameter.trainable});
  }
  UnitLayout layout = lay_out(kind, parameters, shard_ranks);

  PlannedUnit unit;
  unit.path = tree.modules[selected.module].path;
  unit.class_name = tree.modules[selected.module].class_name;
  unit.parent = selected.parent;
  unit.buffers = std::move(layout.buffers);
  for (size_t i = 0; i < selected.parameters.size(); ++i) {
    const TreeParameter& parameter = tree.parameters[selected.parameters[i]];
    PlannedParameter planned;
    planned.name = parameter.names.front();
    planned.aliases.assign(parameter.names.begin() + 1, parameter.names.end());
    planned.shape = parameter.shape;
    planned.buffer = layout.places[i].buffer;
    planned.offset = layout.places[i].offset;
    planned.chunk = layout.places[i].chunk;
    unit.parameters.push_back(std::move(planned));
  }
  return unit;
}

/// What a unit computes in and what gradients are summed in, where that is not what its parameters are stored in.
void set_precision(PlannedUnit& unit, const MixedPrecisionOptions& precision) {
  for (PlannedBuffer& buffer : unit.buffers) {
    const bool casts = is_floating(buffer.dtype);
    if (casts && precision.param != buffer.dtype) buffer.cast = precision.param;
    buffer.reduced = casts ? precision.reduce.value_or(compute_dtype(buffer)) : buffer.dtype;
  }
  if (precision.cast_forward_inputs) unit.inputs_cast = precision.param;
  unit.outputs_cast = precision.output;
}

}  // namespace

Plan lay_out_units(std::string_view strategy, const ModuleTree& tree, std::span<const SelectedUnit> units,
                   const Mesh& mesh, const Fsdp2Options& options) {
  Plan plan;
  plan.strategy = strategy;
  const Layout layout = layout_of(options);
  plan.layout = name_of(layout);
  plan.mesh = mesh;
  plan.force_collectives = options.debug.force_collectives;
  plan.check_steps = options.debug.check_steps;
  plan.broadcasts_values = options.load_mode == LoadMode::kBroadcast;
  plan.prefetch_forward = options.prefetch.forward;
  plan.prefetch_backward = options.prefetch.backward;
  plan.order_check = options.debug.order_check;
  plan.gradient_divisor = options.gradient.divide_factor;
  plan.clip_norm = options.gradient.clip_norm;
  for (const SelectedUnit& unit : units) {
    plan.units.push_back(plan_unit(tree, unit, layout, mesh.shard));
    set_precision(plan.units.back(), options.mixed_precision);
  }
  return plan;
}

namespace {

Plan full_shard(const ModuleTree& tree, std::span<const SelectedUnit> units, const Mesh& mesh,
                const Fsdp2Options& options) {
  Plan plan = lay_out_units("fsdp2.full_shard", tree, units, mesh, options);
  // The root is needed again first thing in backward, so "auto" keeps it.
  const bool root_reshards = !std::holds_alternative<ReshardAuto>(options.reshard_after_forward);
  for (PlannedUnit& unit : plan.units) unit.reshard_after_forward = unit.parent.has_value() || root_reshards;
  if (const auto* ranks = std::get_if<int64_t>(&options.reshard_after_forward)) {
    for (PlannedUnit& unit : plan.units) reshard_to(unit, *ranks, mesh);
    if (*ranks == 1 && mesh.shard > 1) {
      plan.notes.emplace_back("reshard_after_forward = 1 keeps units whole after forward, as shard_grad_op does");
    }
  }
  return plan;
}

Plan shard_grad_op(const ModuleTree& tree, std::span<const SelectedUnit> units, const Mesh& mesh,
                   const Fsdp2Options& options) {
  Plan plan = lay_out_units("fsdp2.shard_grad_op", tree, units, mesh, options);
  for (PlannedUnit& unit : plan.units) unit.reshard_after_forward = false;
  return plan;
}

Plan no_shard(const ModuleTree& tree, std::span<const SelectedUnit> units, const Mesh& mesh,
              const Fsdp2Options& options) {
  const Mesh copies{mesh.replicate * mesh.shard, 1};
  Plan plan = lay_out_units("fsdp2.no_shard", tree, units, copies, options);
  for (PlannedUnit& unit : plan.units) unit.reshard_after_forward = false;
  return plan;
}

/// The mesh makes the difference, and it is the planner's.
template <StrategyFunction one_dimension>
Plan hybrid(const ModuleTree& tree, std::span<const SelectedUnit> units, const Mesh& mesh,
            const Fsdp2Options& options) {
  Plan plan = one_dimension(tree, units, mesh, options);
  plan.strategy = strategy_full_name(options);
  return plan;
}

constexpr std::array kStrategies{
    Strategy{"fsdp2.full_shard", "parameters, gradients and optimizer state in shards; resharded after forward",
             full_shard},
    Strategy{"fsdp2.shard_grad_op", "like full_shard, but parameters stay whole from forward to backward",
             shard_grad_op},
    Strategy{"fsdp2.hybrid_shard", "full_shard inside each node (or mesh.shard ranks), replicated over nodes",
             hybrid<full_shard>},
    Strategy{"fsdp2.hybrid_shard_zero2", "shard_grad_op inside each node (or mesh.shard ranks), replicated over nodes",
             hybrid<shard_grad_op>},
    Strategy{"fsdp2.no_shard", "every rank holds everything; gradients are averaged", no_shard},
};

}  // namespace

std::span<const Strategy> strategies() {
  return kStrategies;
}

}  // namespace fsdp2
