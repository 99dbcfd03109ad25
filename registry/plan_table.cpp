// A plan as a table for a person.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "registry/layout.hpp"
#include "registry/nearest_name.hpp"
#include "registry/plan_text.hpp"
#include "registry/text_table.hpp"

namespace fsdp2 {

std::string unit_name(const PlannedUnit& unit) {
  return unit.path.empty() ? "(root)" : unit.path;
}

std::string buffers_text(const PlannedUnit& unit) {
  std::string text;
  for (const PlannedBuffer& buffer : unit.buffers) {
    if (!text.empty()) text += ", ";
    text += name_of(buffer.dtype);
    if (buffer.cast) text += " as " + std::string(name_of(*buffer.cast));
    if (!buffer.trainable) text += " frozen";
  }
  return text.empty() ? "-" : text;
}

std::string reshard_text(const PlannedUnit& unit) {
  if (unit.reshard_to > 0) return "to " + std::to_string(unit.reshard_to);
  return unit.reshard_after_forward ? "yes" : "no";
}

namespace {

std::string casts_text(const PlannedUnit& unit) {
  std::string text;
  if (unit.inputs_cast) text += "inputs to " + std::string(name_of(*unit.inputs_cast));
  if (unit.outputs_cast) {
    text += (text.empty() ? "outputs to " : ", outputs to ") + std::string(name_of(*unit.outputs_cast));
  }
  return text;
}

TextRow row_of(const Plan& plan, const PlannedUnit& unit) {
  return {unit_name(unit),
          unit.class_name,
          std::to_string(unit.parameters.size()),
          buffers_text(unit),
          bytes_text(unsharded_bytes(plan, unit)),
          bytes_text(shard_bytes(unit)),
          std::to_string(padding_bytes(unit, plan.mesh.shard)),
          std::to_string(padding_bound(unit, plan.mesh.shard)),
          reshard_text(unit),
          casts_text(unit)};
}

}  // namespace

std::string to_table(const Plan& plan) {
  const int64_t world = plan.mesh.replicate * plan.mesh.shard;
  std::string text = plan.strategy + ", layout " + plan.layout + ", " + std::to_string(world) +
                     (world == 1 ? " rank (" : " ranks (") + std::to_string(plan.mesh.replicate) + " x " +
                     std::to_string(plan.mesh.shard) + ")\n";
  const bool casts = std::any_of(plan.units.begin(), plan.units.end(),
                                 [](const PlannedUnit& unit) { return unit.inputs_cast || unit.outputs_cast; });
  std::vector<TextRow> rows{{"unit", "class", "parameters", "dtype", "whole", "a rank", "padding B", "at most B",
                             "reshard", casts ? "casts" : ""}};
  int64_t padding = 0;
  for (const PlannedUnit& unit : plan.units) {
    rows.push_back(row_of(plan, unit));
    padding += padding_bytes(unit, plan.mesh.shard);
  }
  text += aligned(rows, {2, 4, 5, 6, 7});
  text += "parameters " + bytes_text(parameter_bytes(plan)) + ", a rank holds " + bytes_text(shard_bytes(plan)) +
          " (padding over all ranks " + std::to_string(padding) + " B) and gathers at most " +
          bytes_text(peak_unsharded_bytes(plan)) + " beside it at once\n";
  if (!plan.ignored_parameters.empty()) {
    const std::vector<std::string_view> names(plan.ignored_parameters.begin(), plan.ignored_parameters.end());
    text += "not sharded: " + quoted_list(names) + "\n";
  }
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace fsdp2
