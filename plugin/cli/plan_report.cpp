#include "plugin/cli/plan_report.hpp"

#include <array>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include "registry/layout.hpp"
#include "registry/nearest_name.hpp"
#include "registry/plan_text.hpp"
#include "registry/text_table.hpp"

namespace fsdp2::cli {
namespace {

/// All of its line but the name.
TextRow row_of(const Plan& plan, const PlannedUnit& unit) {
  return {unit.class_name,
          std::to_string(unit.parameters.size()),
          buffers_text(unit),
          bytes_text(unsharded_bytes(plan, unit)),
          bytes_text(shard_bytes(unit)),
          std::to_string(padding_bytes(unit, plan.mesh.shard)),
          reshard_text(unit)};
}

std::string units_table(const Plan& plan, bool every_unit) {
  struct Line {
    const PlannedUnit* first;
    const PlannedUnit* last;
    int64_t count;
    TextRow row;
  };
  std::vector<Line> lines;
  std::map<TextRow, size_t> alike;
  for (const PlannedUnit& unit : plan.units) {
    TextRow row = row_of(plan, unit);
    const auto [same, is_new] = alike.try_emplace(row, lines.size());
    if (is_new || every_unit || !unit.parent) {
      lines.push_back({&unit, &unit, 1, std::move(row)});
    } else {
      lines[same->second].last = &unit;
      ++lines[same->second].count;
    }
  }
  std::vector<TextRow> rows{
      {"unit", "units", "class", "parameters", "dtype", "whole", "a rank", "padding B", "reshard"}};
  for (Line& line : lines) {
    TextRow row{unit_name(*line.first) + (line.count > 1 ? " .. " + unit_name(*line.last) : ""),
                std::to_string(line.count)};
    row.insert(row.end(), line.row.begin(), line.row.end());
    rows.push_back(std::move(row));
  }
  return aligned(rows, {1, 3, 5, 6, 7});
}

std::string memory_table(const PlanReport& report) {
  const RankMemory& memory = report.memory;
  std::vector<TextRow> rows{{"memory of a rank", ""},
                            {"parameters, sharded", bytes_text(memory.parameters)},
                            {"gradients, sharded", bytes_text(memory.gradients)},
                            {"optimizer (" + report.optimizer + ")", bytes_text(memory.optimizer)}};
  if (report.ignored > 0) rows.push_back({"ignored modules, whole", bytes_text(report.ignored)});
  rows.push_back({"at rest", bytes_text(memory.at_rest() + report.ignored)});
  rows.push_back({"whole parameters in forward, at most", bytes_text(memory.unsharded_in_forward)});
  rows.push_back({"whole parameters and gradients in backward, at most", bytes_text(memory.unsharded_in_backward)});
  const std::string with =
      report.activations > 0 ? ", with " + bytes_text(report.activations) + " of activations" : ", without activations";
  const int64_t beside = report.ignored + report.activations;
  rows.push_back({"peak in forward" + with, bytes_text(memory.forward_peak + beside)});
  rows.push_back({"peak in backward" + with, bytes_text(memory.backward_peak + beside)});
  return aligned(rows, {1});
}

std::string traffic_table(const StepTraffic& traffic) {
  std::vector<TextRow> rows{{"a step communicates", "collectives", "bytes", "a rank sends"}};
  const auto add = [&](const char* name, const CollectiveTraffic& one) {
    if (one.calls > 0)
      rows.push_back({name, std::to_string(one.calls), std::to_string(one.bytes), bytes_text(one.sent)});
  };
  add("all-gather", traffic.all_gather);
  add("reduce-scatter", traffic.reduce_scatter);
  add("all-reduce", traffic.all_reduce);
  if (rows.size() == 1) return "a step communicates nothing\n";
  return aligned(rows, {1, 2, 3});
}

std::string milliseconds(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), seconds < 0.1 ? "%.2f ms" : "%.0f ms", seconds * 1e3);
  return text.data();
}

std::string time_line(const StepTime& time) {
  return "a step takes about " + milliseconds(time.total) + ": computing " + milliseconds(time.computing) +
         ", communicating " + milliseconds(time.communicating) + ", of which " + milliseconds(time.waiting) +
         " are not hidden\n";
}

std::string fit_text(const PlanReport& report) {
  const std::string limit = bytes_text(*report.limit);
  if (report.fits()) {
    return "fits into " + limit + ", with " + bytes_text(*report.limit - report.peak()) + " to spare\n";
  }
  std::string text = "does not fit into " + limit + ": " + bytes_text(report.peak() - *report.limit) + " too much\n";
  if (report.alternatives.empty()) return text + "none of the options tried makes it smaller\n";
  std::vector<TextRow> rows{{"with", "peak", "fits"}};
  for (const Alternative& one : report.alternatives) {
    for (size_t i = 0; i + 1 < one.changes.size(); ++i) rows.push_back({one.changes[i] + " and", "", ""});
    rows.push_back({one.changes.back(), bytes_text(one.peak), one.fits ? "yes" : "no"});
  }
  return text + aligned(rows, {1});
}

Json json_of(const CollectiveTraffic& traffic) {
  return {{"collectives", traffic.calls}, {"bytes", traffic.bytes}, {"sent_bytes", traffic.sent}};
}

Json json_of(const Plan& plan, const PlannedUnit& unit) {
  Json parameters = Json::array();
  for (const PlannedParameter& parameter : unit.parameters) {
    const PlannedBuffer& buffer = unit.buffers[parameter.buffer];
    parameters.push_back({{"name", parameter.name},
                          {"aliases", parameter.aliases},
                          {"shape", parameter.shape},
                          {"dtype", name_of(buffer.dtype)},
                          {"trainable", buffer.trainable}});
  }
  return {{"path", unit.path},
          {"class", unit.class_name},
          {"parent", unit.parent ? Json(plan.units[*unit.parent].path) : Json()},
          {"reshard_after_forward", unit.reshard_to > 0 ? Json(unit.reshard_to) : Json(unit.reshard_after_forward)},
          {"whole_bytes", unsharded_bytes(plan, unit)},
          {"rank_bytes", shard_bytes(unit)},
          {"padding_bytes", padding_bytes(unit, plan.mesh.shard)},
          {"parameters", parameters}};
}

Json json_of(const PlanReport& report, const RankMemory& memory) {
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"ignored", report.ignored},
          {"at_rest", memory.at_rest() + report.ignored},
          {"activations", report.activations},
          {"unsharded_in_forward", memory.unsharded_in_forward},
          {"unsharded_in_backward", memory.unsharded_in_backward},
          {"forward_peak", memory.forward_peak + report.ignored + report.activations},
          {"backward_peak", memory.backward_peak + report.ignored + report.activations}};
}

}  // namespace

std::string text_of(const PlanReport& report, bool every_unit) {
  const Plan& plan = report.plan;
  const int64_t world = plan.mesh.replicate * plan.mesh.shard;
  std::string text = plan.strategy + ", layout " + plan.layout + ", " + std::to_string(world) +
                     (world == 1 ? " rank (" : " ranks (") + std::to_string(plan.mesh.replicate) + " x " +
                     std::to_string(plan.mesh.shard) + "), parameters " + bytes_text(parameter_bytes(plan)) + "\n\n";
  text += units_table(plan, every_unit) + "\n" + memory_table(report) + "\n" + traffic_table(report.traffic);
  if (report.time) text += time_line(*report.time);
  if (report.limit) text += "\n" + fit_text(report);
  if (!plan.ignored_parameters.empty()) {
    const std::vector<std::string_view> names(plan.ignored_parameters.begin(), plan.ignored_parameters.end());
    text += "\nnot sharded: " + quoted_list(names) + "\n";
  }
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

Json json_of(const PlanReport& report) {
  const Plan& plan = report.plan;
  Json units = Json::array();
  for (const PlannedUnit& unit : plan.units) units.push_back(json_of(plan, unit));
  Json json{{"strategy", plan.strategy},
            {"layout", plan.layout},
            {"mesh", {{"replicate", plan.mesh.replicate}, {"shard", plan.mesh.shard}}},
            {"parameter_bytes", parameter_bytes(plan)},
            {"optimizer", report.optimizer},
            {"memory", json_of(report, report.memory)},
            {"traffic",
             {{"all_gather", json_of(report.traffic.all_gather)},
              {"reduce_scatter", json_of(report.traffic.reduce_scatter)},
              {"all_reduce", json_of(report.traffic.all_reduce)}}},
            {"units", units},
            {"ignored_parameters", plan.ignored_parameters},
            {"notes", plan.notes},
            {"config", {{"warning", report.config_warning}, {"notes", report.config_notes}}}};
  if (report.time) {
    json["seconds"] = {{"total", report.time->total},
                       {"computing", report.time->computing},
                       {"communicating", report.time->communicating},
                       {"waiting", report.time->waiting}};
  }
  if (report.limit) {
    Json alternatives = Json::array();
    for (const Alternative& one : report.alternatives) {
      alternatives.push_back({{"changes", one.changes}, {"peak", one.peak}, {"fits", one.fits}});
    }
    json["limit"] = {
        {"memory", *report.limit}, {"peak", report.peak()}, {"fits", report.fits()}, {"alternatives", alternatives}};
  }
  return json;
}

}  // namespace fsdp2::cli
