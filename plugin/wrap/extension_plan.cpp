#include "plugin/wrap/extension_plan.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugin/wrap/auto_wrap.hpp"
#include "plugin/wrap/policies.hpp"
#include "registry/error.hpp"
#include "registry/extension_call.hpp"
#include "registry/mesh.hpp"
#include "registry/registry.hpp"
#include "registry/reshard.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2 {

template <>
inline constexpr size_t kFirstSize<fsdp2_tree_module> = 56;
template <>
inline constexpr size_t kFirstSize<fsdp2_tree_parameter> = 96;
template <>
inline constexpr size_t kFirstSize<fsdp2_unit_choice> = 24;

namespace {

/// Calls that come from the library: an exception must not get into its frames.
template <typename Body>
int32_t failed(Body body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    return 1;
  }
}

/// The model and the options, as the strategy asks for them.
class StrategyInput {
 public:
  /// `chosen`: what the policy would choose.
  StrategyInput(const ModuleTree& tree, std::vector<bool> chosen, const Fsdp2Options& options, const Mesh& mesh)
      : tree_(tree), chosen_(std::move(chosen)), mesh_(mesh), toml_(to_toml(options)) {
    for (const TreeParameter& parameter : tree.parameters) {
      std::vector<const char*>& names = names_.emplace_back();
      for (const std::string& name : parameter.names) names.push_back(name.c_str());
      dtypes_.emplace_back(name_of(parameter.dtype));
    }
    for (const auto& [name, value] : options.strategy_options) {
      const auto* text = std::get_if<std::string>(&value);
      options_[name] = text != nullptr ? *text : value_text(value);
    }
  }

  [[nodiscard]] fsdp2_plan_input table() const {
    return {.struct_size = sizeof(fsdp2_plan_input),
            .context = this,
            .module_count = tree_.modules.size(),
            .parameter_count = tree_.parameters.size(),
            .world_size = mesh_.replicate * mesh_.shard,
            .replicate = mesh_.replicate,
            .shard = mesh_.shard,
            .options = toml_.c_str(),
            .get_module = &get_module,
            .get_parameter = &get_parameter,
            .get_option = &get_option};
  }

 private:
  static const StrategyInput& of(const void* context) { return *static_cast<const StrategyInput*>(context); }

  static int32_t get_module(const void* context, size_t index, fsdp2_tree_module* out) noexcept {
    return failed([&] {
      const StrategyInput& input = of(context);
      const TreeModule& module = input.tree_.modules.at(index);
      write_struct(out,
                   {.struct_size = 0,
                    .path = module.path.c_str(),
                    .class_name = module.class_name.c_str(),
                    .parent = module.parent ? static_cast<int64_t>(*module.parent) : -1,
                    .object = static_cast<int64_t>(module.object),
                    .has_forward = module.has_forward ? 1 : 0,
                    .called = module.called ? 1 : 0,
                    .frozen = module.frozen ? 1 : 0,
                    .chosen = input.chosen_[index] ? 1 : 0},
                   "fsdp2_tree_module");
    });
  }

  static int32_t get_parameter(const void* context, size_t index, fsdp2_tree_parameter* out) noexcept {
    return failed([&] {
      const StrategyInput& input = of(context);
      const TreeParameter& parameter = input.tree_.parameters.at(index);
      write_struct(out,
                   {.struct_size = 0,
                    .names = input.names_[index].data(),
                    .name_count = parameter.names.size(),
                    .shape = parameter.shape.data(),
                    .dims = parameter.shape.size(),
                    .dtype = input.dtypes_[index].c_str(),
                    .element_size = size_of(parameter.dtype),
                    .trainable = parameter.trainable ? 1 : 0,
                    .reserved = 0,
                    .holders = parameter.holders.data(),
                    .holder_count = parameter.holders.size(),
                    .readers = parameter.readers.data(),
                    .reader_count = parameter.readers.size()},
                   "fsdp2_tree_parameter");
    });
  }

  static const char* get_option(const void* context, const char* name) noexcept {
    if (name == nullptr) return nullptr;
    const auto& options = of(context).options_;
    const auto found = options.find(std::string_view(name));
    return found == options.end() ? nullptr : found->second.c_str();
  }

  const ModuleTree& tree_;
  std::vector<bool> chosen_;
  Mesh mesh_;
  std::string toml_;
  std::vector<std::vector<const char*>> names_;
  std::vector<std::string> dtypes_;
  std::map<std::string, std::string, std::less<>> options_;
};

/// What the strategy decides. Its first fault is kept, and counts when it has returned.
class StrategyOutput {
 public:
  [[nodiscard]] fsdp2_plan_output table() {
    return {.struct_size = sizeof(fsdp2_plan_output),
            .context = this,
            .add_unit = &add_unit,
            .set_mesh = &set_mesh,
            .add_note = &add_note,
            .fail = &fail};
  }

  [[nodiscard]] const FirstFault& fault() const { return fault_; }
  [[nodiscard]] const std::vector<fsdp2_unit_choice>& choices() const { return choices_; }
  [[nodiscard]] const std::optional<Mesh>& mesh() const { return mesh_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  static StrategyOutput& of(void* context) { return *static_cast<StrategyOutput*>(context); }

  static void add_unit(void* context, const fsdp2_unit_choice* choice) noexcept {
    StrategyOutput& output = of(context);
    output.fault_.record([&] { output.choices_.push_back(read_struct(choice, "fsdp2_unit_choice")); });
  }

  static void set_mesh(void* context, int64_t replicate, int64_t shard) noexcept {
    of(context).mesh_ = Mesh{replicate, shard};
  }

  static void add_note(void* context, const char* text) noexcept {
    StrategyOutput& output = of(context);
    output.fault_.record([&] { output.notes_.emplace_back(text_or(text, "")); });
  }

  static void fail(void* context, fsdp2_code code, const char* message, const char* key) noexcept {
    of(context).fault_.record([&] {
      throw Error(code_from(code), text_or(message, "it failed without a message"), {.key = text_or(key, "")});
    });
  }

  std::vector<fsdp2_unit_choice> choices_;
  std::optional<Mesh> mesh_;
  std::vector<std::string> notes_;
  FirstFault fault_;
};

/// How each unit, by its object, reshards after its forward.
std::map<size_t, ReshardAfterForward> checked_choices(const ModuleTree& tree,
                                                      const std::vector<fsdp2_unit_choice>& choices, const Mesh& mesh) {
  std::map<size_t, ReshardAfterForward> units;
  for (const fsdp2_unit_choice& choice : choices) {
    if (choice.module >= tree.modules.size()) {
      throw Error(ErrorCode::kInvalidArgument, "it chose module " + std::to_string(choice.module) + ", and there are " +
                                                   std::to_string(tree.modules.size()) + ", counted from 0");
    }
    const TreeModule& module = tree.modules[choice.module];
    const std::string name = module.path.empty() ? "the root" : "`" + module.path + "`";
    const ErrorDetails details{.module = module.path};
    if (module.frozen) throw frozen_error(module);
    if (!module.has_forward) {
      throw Error(ErrorCode::kInvalidArgument,
                  "it chose " + name + ", a container without a forward, which cannot be a unit", details);
    }
    const int64_t reshard = choice.reshard_after_forward;
    if (reshard < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "it gave " + name + " reshard_after_forward = " + std::to_string(reshard) +
                      "; 0 (stays whole), 1 (reshards) and numbers of ranks are accepted",
                  details);
    }
    if (const std::string fault = fault_of_block(reshard, mesh); reshard > 1 && !fault.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "it gave " + name + " " + fault, details);
    }
    const ReshardAfterForward rule = reshard > 1 ? ReshardAfterForward(reshard) : ReshardAfterForward(reshard == 1);
    if (!units.emplace(module.object, rule).second) {
      const std::string& first = tree.modules[module.object].path;
      throw Error(ErrorCode::kInvalidArgument,
                  "it chose " + name + (first == module.path ? " twice" : " and `" + first + "`, which are one module"),
                  details);
    }
  }
  return units;
}

Mesh checked_mesh(const Mesh& mesh, int64_t world) {
  if (covers(mesh, world)) return mesh;
  throw Error(ErrorCode::kInvalidArgument, "it asked for a mesh of " + std::to_string(mesh.replicate) + " x " +
                                               std::to_string(mesh.shard) + ", and there are " + std::to_string(world) +
                                               " ranks");
}

struct Decision {
  std::map<size_t, ReshardAfterForward> reshards;  // by object, of every unit but perhaps the root
  Mesh mesh;
  std::vector<std::string> notes;
};

Decision decide(const fsdp2_strategy& strategy, const StrategyInput& input, const ModuleTree& tree, const Mesh& asked) {
  StrategyOutput output;
  const fsdp2_plan_input given = input.table();
  const fsdp2_plan_output wanted = output.table();
  call_extension([&] { return strategy.plan(strategy.user, &given, &wanted); }, output.fault());
  const Mesh mesh = checked_mesh(output.mesh().value_or(asked), asked.replicate * asked.shard);
  return {checked_choices(tree, output.choices(), mesh), mesh, output.notes()};
}

/// "auto", which the root alone may have, keeps it, as full_shard does.
void set_reshard(PlannedUnit& unit, const ReshardAfterForward& rule, const Mesh& mesh) {
  const bool* flag = std::get_if<bool>(&rule);
  unit.reshard_after_forward = flag != nullptr && *flag;
  if (const auto* ranks = std::get_if<int64_t>(&rule)) reshard_to(unit, *ranks, mesh);
}

}  // namespace

Plan plan_by(const ExtensionStrategy& strategy, const ModuleTree& tree, const Config& config, const Mesh& mesh) {
  const Fsdp2Options& options = config.options;
  const StrategyInput input(tree, choose_modules(tree, options.wrap), options, mesh);
  Decision decision;
  try {
    decision = decide(strategy.table, input, tree, mesh);
  } catch (const Error& error) {
    ErrorDetails details = error.details();
    if (details.key.empty()) details.key = "strategy";
    throw Error(error.code(),
                "strategy \"" + std::string(strategy.table.name) + "\" (" + strategy.library + "): " + error.what(),
                std::move(details));
  }
  decision.reshards.emplace(0, options.reshard_after_forward);

  std::vector<bool> chosen;
  for (const TreeModule& module : tree.modules) chosen.push_back(decision.reshards.contains(module.object));
  const std::vector<SelectedUnit> units = units_of_chosen(tree, std::move(chosen), decision.notes);
  Plan plan = lay_out_units(strategy.table.name, tree, units, decision.mesh, options);
  const bool copies = decision.mesh.shard == 1 && decision.mesh.replicate > 1;  // nothing to reshard
  try {
    for (size_t i = 0; i < units.size(); ++i) {
      set_reshard(plan.units[i], copies ? ReshardAfterForward(false) : decision.reshards.at(units[i].module),
                  decision.mesh);
    }
  } catch (const Error& error) {  // the root's rule is that of the options, the mesh need not be
    if (decision.mesh == mesh) throw;
    throw Error(error.code(),
                std::string(error.what()) + " (strategy \"" + strategy.table.name + "\" set a mesh of " +
                    std::to_string(decision.mesh.replicate) + " x " + std::to_string(decision.mesh.shard) + ")",
                error.details());
  }
  plan.notes = std::move(decision.notes);
  return plan;
}

}  // namespace fsdp2
