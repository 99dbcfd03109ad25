// `fsdp2 inspect model.pt`: what a model is made of, whether it can be sharded, and a wrap policy for it.
#include <algorithm>
#include <iostream>
#include <memory>
#include <set>

#include "plugin/cli/command.hpp"
#include "plugin/cli/model_facts.hpp"
#include "plugin/cli/module_summary.hpp"
#include "plugin/cli/module_table.hpp"
#include "plugin/cli/options_json.hpp"
#include "plugin/wrap/suggested_wrap.hpp"
#include "registry/text_table.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2::cli {
namespace {

struct Inspection {
  std::string path;
  ModelFacts facts;
  std::vector<ModuleSummary> summaries;
  std::vector<RepeatedClass> repeated;
  std::optional<SuggestedWrap> suggested;
};

Inspection inspect(const std::string& path) {
  Inspection found;
  found.path = path;
  found.facts = read_model_facts(path);
  found.summaries = summarize(found.facts);
  found.repeated = repeated_classes(found.facts.tree, found.facts.unfit);
  found.suggested = suggest_wrap(found.facts.tree, found.repeated, found.facts.unfit);
  return found;
}

double share(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

const PlannedUnit& largest_unit(const Plan& plan) {
  return *std::max_element(plan.units.begin(), plan.units.end(), [&](const PlannedUnit& a, const PlannedUnit& b) {
    return unsharded_bytes(plan, a) < unsharded_bytes(plan, b);
  });
}

// ---- for a person

std::string heading(const Inspection& found) {
  const ModuleSummary& root = found.summaries[0];
  const auto modules = static_cast<int64_t>(found.facts.tree.modules.size());
  std::string text = found.path + ": " + count_text(modules) + (modules == 1 ? " module, " : " modules, ") +
                     count_text(root.elements) + " parameters in " +
                     count_text(static_cast<int64_t>(found.facts.tree.parameters.size())) + " tensors, " +
                     bytes_text(root.bytes);
  if (!root.dtypes.empty()) text += " (" + dtypes_text(root.dtypes) + ")";
  if (root.buffer_bytes > 0) text += ", buffers " + bytes_text(root.buffer_bytes);
  return text + "\n";
}

std::string repeated_table(const Inspection& found) {
  std::vector<TextRow> rows{{"class that repeats", "modules", "parameters of each", "in all", "share", "as units"}};
  for (const RepeatedClass& repeated : found.repeated) {
    const std::string most = count_text(repeated.most);
    rows.push_back({repeated.name, std::to_string(repeated.modules.size()),
                    repeated.least == repeated.most ? most : count_text(repeated.least) + " to " + most,
                    count_text(repeated.parameters),
                    percent_text(share(repeated.parameters, found.summaries[0].elements)),
                    repeated.why_not.empty() ? "possible" : "no: " + repeated.why_not});
  }
  return rows.size() == 1 ? "No class repeats.\n" : aligned(rows, {1, 2, 3, 4});
}

std::string verdict(const ModelFacts& facts) {
  std::string text = facts.refusals.empty() ? "It can be sharded.\n" : "It cannot be sharded:\n";
  for (const Error& refusal : facts.refusals) text += "  - " + std::string(refusal.what()) + "\n";
  for (const std::string& remark : facts.remarks) text += "  note: " + remark + "\n";
  return text;
}

/// TOML that can be pasted, remarks and all.
std::string suggestion_text(const SuggestedWrap& suggested, bool can_be_sharded) {
  const Plan& plan = suggested.plan;
  const PlannedUnit& largest = largest_unit(plan);
  const int64_t whole = peak_unsharded_bytes(plan);
  std::string text = "# " + suggested.why + "\n# On " + std::to_string(SuggestedWrap::kRanks) +
                     " ranks: " + std::to_string(plan.units.size()) + (plan.units.size() == 1 ? " unit" : " units") +
                     ", the largest " + (largest.path.empty() ? "the root" : largest.path) + " of " +
                     bytes_text(unsharded_bytes(plan, largest)) + "; a rank holds " + bytes_text(shard_bytes(plan)) +
                     " and at most " + bytes_text(whole) + " whole at once, " + percent_text(whole_share(plan)) +
                     " of all that is sharded" + ".\n";
  if (!can_be_sharded) text += "# Once nothing stands against sharding it.\n";
  return text + wrap_to_toml(suggested.wrap);
}

void print_for_a_person(const Inspection& found, const TableLimits& limits) {
  std::cout << heading(found) << "\n" << module_table(found.facts, found.summaries, limits) << "\n";
  if (found.summaries[0].elements > 0) std::cout << repeated_table(found) << "\n";
  std::cout << verdict(found.facts);
  if (found.suggested) std::cout << "\n" << suggestion_text(*found.suggested, found.facts.refusals.empty());
}

// ---- for programs

Json json_of(const Inspection& found, const NamedParameter& named, size_t holder) {
  const TreeParameter& parameter = found.facts.tree.parameters[named.parameter];
  Json read_by = Json::array();
  std::set<size_t> seen;
  for (const size_t reader : parameter.readers) {
    if (seen.insert(reader).second) read_by.push_back(found.facts.tree.modules[reader].path);
  }
  return {{"name", named.name},
          {"shape", parameter.shape},
          {"dtype", name_of(parameter.dtype)},
          {"bytes", bytes_of(parameter)},
          {"trainable", parameter.trainable},
          {"tied_with", tied_names(found.facts.tree, named, holder)},
          {"read_by", read_by}};
}

Json json_of(const Inspection& found, size_t m) {
  const TreeModule& module = found.facts.tree.modules[m];
  const ModuleSummary& summary = found.summaries[m];
  Json dtypes = Json::array();
  for (const DType dtype : summary.dtypes) dtypes.push_back(name_of(dtype));
  Json json{{"path", module.path},
            {"class", module.class_name},
            {"own_elements", summary.own_elements},
            {"elements", summary.elements},
            {"trainable_elements", summary.trainable_elements},
            {"bytes", summary.bytes},
            {"buffer_bytes", summary.buffer_bytes},
            {"dtypes", dtypes},
            {"has_forward", module.has_forward},
            {"called", module.called},
            {"frozen_by_freeze", module.frozen.has_value()}};
  if (module.object != m) json["same_module_as"] = found.facts.tree.modules[module.object].path;
  if (!found.facts.unfit[m].empty()) json["cannot_be_a_unit"] = found.facts.unfit[m];
  json["parameters"] = Json::array();
  for (const NamedParameter& named : summary.own) json["parameters"].push_back(json_of(found, named, m));
  json["children"] = Json::array();
  for (const size_t child : summary.children) json["children"].push_back(json_of(found, child));
  return json;
}

Json json_of(const RepeatedClass& repeated, const Inspection& found) {
  Json paths = Json::array();
  for (const size_t m : repeated.modules) paths.push_back(found.facts.tree.modules[m].path);
  Json json{{"class", repeated.name},
            {"modules", paths},
            {"least_elements", repeated.least},
            {"most_elements", repeated.most},
            {"elements", repeated.parameters},
            {"share", share(repeated.parameters, found.summaries[0].elements)},
            {"candidate", repeated.why_not.empty()}};
  if (!repeated.why_not.empty()) json["why_not"] = repeated.why_not;
  return json;
}

Json json_of(const SuggestedWrap& suggested) {
  const Plan& plan = suggested.plan;
  const PlannedUnit& largest = largest_unit(plan);
  Fsdp2Options options;
  options.wrap = suggested.wrap;
  return {{"wrap", options_json(options)["wrap"]},
          {"toml", wrap_to_toml(suggested.wrap)},
          {"why", suggested.why},
          {"plan",
           {{"ranks", SuggestedWrap::kRanks},
            {"units", plan.units.size()},
            {"largest_unit", largest.path},
            {"largest_unit_bytes", unsharded_bytes(plan, largest)},
            {"rank_bytes", shard_bytes(plan)},
            {"whole_at_once_bytes", peak_unsharded_bytes(plan)},
            {"whole_at_once_share", whole_share(plan)},
            {"parameter_bytes", parameter_bytes(plan)}}}};
}

Json json_of(const Inspection& found) {
  Json json{{"file", found.path},
            {"can_be_sharded", found.facts.refusals.empty()},
            {"refusals", Json::array()},
            {"notes", found.facts.remarks},
            {"tensors", found.facts.tree.parameters.size()},
            {"modules", found.facts.tree.modules.size()},
            {"repeated_classes", Json::array()},
            {"suggestion", nullptr},
            {"root", json_of(found, size_t{0})}};
  for (const Error& refusal : found.facts.refusals) json["refusals"].push_back(cli::json_of(refusal)["error"]);
  for (const RepeatedClass& repeated : found.repeated) json["repeated_classes"].push_back(json_of(repeated, found));
  if (found.suggested) json["suggestion"] = json_of(*found.suggested);
  return json;
}

}  // namespace

void add_inspect(CLI::App& program, Invocation& invocation) {
  CLI::App* command = add_command(program, invocation, "inspect",
                                  "Show what a TorchScript file is made of, whether it can be sharded, and how to wrap "
                                  "it; exit status 1 where it cannot be sharded",
                                  "  fsdp2 inspect model.pt\n"
                                  "  fsdp2 inspect model.pt --depth 2\n"
                                  "  fsdp2 inspect model.pt --json | jq .suggestion.wrap");
  struct Arguments {
    std::string model;
    int64_t depth = -1;
    bool all = false;
  };
  const auto given = std::make_shared<Arguments>();
  command->add_option("model", given->model, "TorchScript file; its weights are not read")->required();
  command->add_option("--depth", given->depth, "levels of modules in the table below the root")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--all", given->all, "equal modules side by side each on its own line");
  command->callback([&invocation, given] {
    invocation.run = [&invocation, given] {
      const Inspection found = inspect(given->model);
      TableLimits limits;
      if (given->depth >= 0) limits.depth = static_cast<size_t>(given->depth);
      limits.all = given->all;
      if (invocation.json) {
        print(json_of(found));
      } else {
        print_for_a_person(found, limits);
      }
      return found.facts.refusals.empty() ? kDone : kRefused;
    };
  });
}

}  // namespace fsdp2::cli
