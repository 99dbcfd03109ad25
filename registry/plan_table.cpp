// A plan as a table for a person.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "registry/layout.hpp"
#include "registry/nearest_name.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {
namespace {

using Row = std::vector<std::string>;

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
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

std::string casts_text(const PlannedUnit& unit) {
  std::string text;
  if (unit.inputs_cast) text += "inputs to " + std::string(name_of(*unit.inputs_cast));
  if (unit.outputs_cast) {
    text += (text.empty() ? "outputs to " : ", outputs to ") + std::string(name_of(*unit.outputs_cast));
  }
  return text;
}

Row row_of(const Plan& plan, const PlannedUnit& unit) {
  return {unit.path.empty() ? "(root)" : unit.path,
          unit.class_name,
          std::to_string(unit.parameters.size()),
          buffers_text(unit),
          bytes_text(unsharded_bytes(plan, unit)),
          bytes_text(shard_bytes(unit)),
          std::to_string(padding_bytes(unit, plan.mesh.shard)),
          std::to_string(padding_bound(unit, plan.mesh.shard)),
          unit.reshard_to > 0          ? "to " + std::to_string(unit.reshard_to)
          : unit.reshard_after_forward ? "yes"
                                       : "no",
          casts_text(unit)};
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blank(widths[i] - row[i].size(), ' ');
      // Names to the left, numbers (columns 3 and 5 to 8) to the right.
      const bool right = i == 2 || (i >= 4 && i <= 7);
      line += (i == 0 ? "" : "  ") + (right ? blank + row[i] : row[i] + blank);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

std::string to_table(const Plan& plan) {
  const int64_t world = plan.mesh.replicate * plan.mesh.shard;
  std::string text = plan.strategy + ", layout " + plan.layout + ", " + std::to_string(world) +
                     (world == 1 ? " rank (" : " ranks (") + std::to_string(plan.mesh.replicate) + " x " +
                     std::to_string(plan.mesh.shard) + ")\n";
  const bool casts = std::any_of(plan.units.begin(), plan.units.end(),
                                 [](const PlannedUnit& unit) { return unit.inputs_cast || unit.outputs_cast; });
  std::vector<Row> rows{{"unit", "class", "parameters", "dtype", "whole", "a rank", "padding B", "at most B", "reshard",
                         casts ? "casts" : ""}};
  int64_t padding = 0;
  for (const PlannedUnit& unit : plan.units) {
    rows.push_back(row_of(plan, unit));
    padding += padding_bytes(unit, plan.mesh.shard);
  }
  text += aligned(rows);
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
