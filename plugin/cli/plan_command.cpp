// `fsdp2 plan`: what a configuration makes of a model on so many ranks.
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "adapters/config.hpp"
#include "plugin/cli/command.hpp"
#include "plugin/cli/model_facts.hpp"
#include "plugin/cli/plan_report.hpp"
#include "plugin/cli/quantity.hpp"
#include "plugin/cli/shape_file.hpp"
#include "plugin/wrap/planner.hpp"
#include "plugin/wrap/suggested_wrap.hpp"

namespace fsdp2::cli {
namespace {

struct PlanOptions {
  std::string model;
  std::string shapes;
  std::string config;
  std::vector<std::string> sets;
  int64_t world = 0;
  int64_t nodes = 0;
  std::string optimizer = "adamw";
  std::optional<int64_t> memory;
  int64_t activations = 0;
  std::optional<double> bandwidth;
  std::optional<double> network;
  std::optional<double> flops;
  double tokens = 0;
  std::optional<double> latency;
  bool every_unit = false;
};

struct Model {
  ModuleTree tree;
  std::vector<std::string> unfit;  // one a module: why it cannot be a unit, empty where it can
};

Model read_model(const PlanOptions& options) {
  if (options.model.empty()) {
    ModuleTree tree = read_shape_file(options.shapes);
    const size_t count = tree.modules.size();
    return {std::move(tree), std::vector<std::string>(count)};
  }
  ModelFacts facts = read_model_facts(options.model);
  if (!facts.refusals.empty()) throw Error(facts.refusals.front());
  return {std::move(facts.tree), std::move(facts.unfit)};
}

Plan plan_of(const Model& model, const Config& config, int64_t world, std::optional<int64_t> ranks_per_node) {
  Plan plan = make_plan(model.tree, config, world, ranks_per_node);
  std::unordered_map<std::string_view, const std::string*> unfit;
  for (size_t m = 0; m < model.unfit.size(); ++m) {
    if (!model.unfit[m].empty()) unfit.emplace(model.tree.modules[m].path, &model.unfit[m]);
  }
  for (const PlannedUnit& unit : plan.units) {
    const auto found = unfit.find(unit.path);
    if (found == unfit.end()) continue;
    throw Error(
        ErrorCode::kUnsupported,
        "unit `" + unit.path + "` " + *found->second + ": it cannot be one; leave class `" + unit.class_name + "` out",
        {.module = unit.path});
  }
  return plan;
}

/// Parameters, gradients and optimizer state of what stays the host's own.
int64_t ignored_bytes(const ModuleTree& tree, const Plan& plan, const OptimizerState& optimizer) {
  const std::set<std::string_view> ignored(plan.ignored_parameters.begin(), plan.ignored_parameters.end());
  int64_t bytes = 0;
  for (const TreeParameter& parameter : tree.parameters) {
    if (!ignored.contains(parameter.names.front())) continue;
    bytes += bytes_of(parameter) * (parameter.trainable ? 2 + optimizer.tensors : 1);
  }
  return bytes;
}

std::optional<WrapOptions> wrap_for(const Model& model) {
  const auto suggested = suggest_wrap(model.tree, repeated_classes(model.tree, model.unfit), model.unfit);
  return suggested ? std::optional(suggested->wrap) : std::nullopt;
}

std::optional<StepTime> time_of(const PlanOptions& options, const Plan& plan, const ModuleTree& tree) {
  if (!options.bandwidth) return std::nullopt;
  Machine machine;
  machine.ranks_per_node = options.nodes > 0 ? options.world / options.nodes : options.world;
  machine.node_bandwidth = *options.bandwidth;
  machine.network = options.network.value_or(0);
  machine.latency = options.latency.value_or(20e-6);
  machine.flops = options.flops;
  machine.tokens = options.tokens;
  const StepTime time = step_time(plan, tree, machine);
  if (!std::isfinite(time.total)) {
    throw CLI::ValidationError("--bandwidth", "and the other amounts make no step that ends");
  }
  return time;
}

Exit run_plan(const PlanOptions& options, bool json) {
  const Config config = options.config.empty() ? load_config_text("", "<command line>", options.sets)
                                               : load_config(options.config, options.sets);
  const Model model = read_model(options);
  const OptimizerState& optimizer = *find_optimizer_state(options.optimizer);
  const std::optional<int64_t> node = options.nodes > 0 ? std::optional(options.world / options.nodes) : std::nullopt;

  PlanReport report;
  report.config_warning = config.warning;
  report.config_notes = config.notes;
  report.plan = plan_of(model, config, options.world, node);
  report.optimizer = options.optimizer;
  report.memory = rank_memory(report.plan, optimizer);
  report.ignored = ignored_bytes(model.tree, report.plan, optimizer);
  report.activations = options.activations;
  report.traffic = step_traffic(report.plan, model.tree);
  report.time = time_of(options, report.plan, model.tree);
  report.limit = options.memory;
  if (!report.fits()) {
    const auto peak_of = [&](const Config& changed, int64_t world) {
      const Plan plan = plan_of(model, changed, world, node);
      return rank_memory(plan, optimizer).peak() + ignored_bytes(model.tree, plan, optimizer) + options.activations;
    };
    report.alternatives = find_alternatives(config, options.world, *options.memory, peak_of, wrap_for(model), node);
  }
  if (json) {
    print(json_of(report));
  } else {
    if (!config.warning.empty()) std::cerr << "warning: " << config.warning << "\n";
    for (const std::string& note : config.notes) std::cerr << "note: " << note << "\n";
    std::cout << text_of(report, options.every_unit);
  }
  return report.fits() ? kDone : kRefused;
}

void check(const PlanOptions& options) {
  if (options.memory == 0) throw CLI::ValidationError("--memory", "is less than a byte");
  if (options.nodes > 0 && options.world % options.nodes != 0) {
    throw CLI::ValidationError("--nodes", std::to_string(options.world) + " ranks do not divide into " +
                                              std::to_string(options.nodes) + " nodes");
  }
  if (options.nodes > 1 && options.bandwidth && !options.network) {
    throw CLI::ValidationError("--network", "is needed to say how long a step takes on several nodes");
  }
  if (options.flops.has_value() != (options.tokens > 0)) {
    throw CLI::ValidationError(options.flops ? "--tokens" : "--flops", "is needed beside the other one");
  }
  if (!options.bandwidth && (options.network || options.flops || options.latency)) {
    throw CLI::ValidationError("--bandwidth", "is needed to say how long a step takes");
  }
}

/// An option whose text becomes an amount.
template <class Target, class Parse>
void add_amount(CLI::App& command, const std::string& name, Target& target, Parse parse, const std::string& type,
                const std::string& help) {
  command
      .add_option_function<std::string>(
          name,
          [&target, parse, name](const std::string& text) {
            try {
              target = parse(text);
            } catch (const std::invalid_argument& error) {
              throw CLI::ValidationError(name, error.what());
            }
          },
          help)
      ->type_name(type);
}

}  // namespace

void add_plan(CLI::App& program, Invocation& invocation) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command = add_command(
      program, invocation, "plan", "Show what a configuration makes of a model: units, memory, bytes, time",
      "  fsdp2 plan --model model.pt --config train.toml --world 8\n"
      "  fsdp2 plan --shapes llama_70b.toml --config train.toml --world 16384 --nodes 2048 --memory 80GiB\n"
      "  fsdp2 plan --model model.pt --set 'wrap.policy=every' --world 64 --nodes 8 --bandwidth 300GB/s \\\n"
      "      --network 400GB/s --flops 400T --tokens 8192");
  auto* source = command->add_option_group("what is sharded");
  source->add_option("--model", options->model, "TorchScript file; its weights are not read")->type_name("FILE");
  source->add_option("--shapes", options->shapes, "TOML list of modules and shapes (docs/shape_files.md)")
      ->type_name("FILE");
  source->require_option(1);
  command->add_option("--config", options->config, "TOML with [fsdp]; without it all options are at their defaults")
      ->type_name("FILE");
  command->add_option("--set", options->sets, "key=value of [fsdp]; wins over the file; may be given again")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--world", options->world, "ranks in all")
      ->required()
      ->check(CLI::Range(int64_t{1}, kMostRanks))
      ->type_name("N");
  command->add_option("--nodes", options->nodes, "nodes that the ranks are on, as many on each")
      ->check(CLI::Range(int64_t{1}, kMostRanks))
      ->type_name("M");
  std::vector<std::string> optimizers;
  for (const std::string_view name : optimizer_names()) optimizers.emplace_back(name);
  command->add_option("--optimizer", options->optimizer, "whose state is counted (adamw)")
      ->check(CLI::IsMember(optimizers))
      ->type_name("NAME");
  add_amount(*command, "--memory", options->memory, parse_bytes, "SIZE",
             "of a rank; where the plan does not fit, say what would, and end with 1");
  add_amount(*command, "--activations", options->activations, parse_bytes, "SIZE",
             "of a rank, to be counted with the peaks: no file says how large they are");
  add_amount(*command, "--bandwidth", options->bandwidth, parse_rate, "RATE",
             "what a rank sends inside its node; with it, how long a step takes");
  add_amount(*command, "--network", options->network, parse_rate, "RATE",
             "what a node sends to others, all its links together");
  add_amount(*command, "--flops", options->flops, parse_number, "N",
             "a second and rank, as reached, not as advertised");
  add_amount(*command, "--tokens", options->tokens, parse_number, "N", "(or rows) of a rank and step");
  add_amount(*command, "--latency", options->latency, parse_seconds, "TIME", "of a collective (20us)");
  command->add_flag("--all", options->every_unit, "a line for each unit, also where they are alike");
  command->callback([options, &invocation] {
    check(*options);
    invocation.run = [options, &invocation] { return run_plan(*options, invocation.json); };
  });
}

}  // namespace fsdp2::cli
