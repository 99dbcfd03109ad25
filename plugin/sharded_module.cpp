#include "plugin/sharded_module.hpp"

#include <set>
#include <utility>

#include "plugin/engine/same_start.hpp"
#include "plugin/engine/unit_table.hpp"
#include "plugin/plan_binding.hpp"
#include "plugin/script/bound_tree.hpp"
#include "plugin/script/method_replacement.hpp"
#include "plugin/script/operators.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

void require_module(const torch::jit::Module& module) {
  try {
    module._ivalue();
  } catch (const c10::Error&) {
    throw Error(ErrorCode::kInvalidArgument, "the module is empty: load one with torch::jit::load first");
  }
}

/// Those that get operators: of units, and of modules that no method calls, so that a host may.
std::set<const c10::ClassType*> bracketed_classes(const BoundTree& bound, const Binding& binding) {
  std::set<const c10::ClassType*> classes;
  for (const auto& object : binding.unit_objects) classes.insert(object->type().get());
  for (size_t m = 0; m < bound.objects.size(); ++m) {
    if (!bound.tree.modules[m].called) classes.insert(bound.objects[m]->type().get());
  }
  return classes;
}

std::unique_ptr<MethodReplacement> replace_methods(const BoundTree& bound, const Binding& binding) {
  std::vector<c10::ClassTypePtr> classes;
  std::set<const c10::ClassType*> known;
  for (const auto& object : bound.objects) {
    if (known.insert(object->type().get()).second) classes.push_back(object->type());
  }
  return std::make_unique<MethodReplacement>(std::move(classes), bracketed_classes(bound, binding));
}

std::vector<std::vector<ParameterHome>> homes_of(Binding& binding) {
  std::vector<std::vector<ParameterHome>> homes;
  for (auto& unit : binding.unit_slots) {
    auto& of_unit = homes.emplace_back();
    for (auto& slots : unit) of_unit.push_back(ParameterHome::in_slots(std::move(slots)));
  }
  return homes;
}

void warn_of_frozen(const ModuleTree& tree, const LogFunction& log) {
  for (const TreeModule& module : tree.modules) {
    if (module.frozen) log(true, frozen_error(module).what());
  }
}

}  // namespace

Plan plan_of(const torch::jit::Module& module, const MakePlan& make_plan, int64_t world) {
  require_module(module);
  const BoundTree bound = read_module_tree(module);
  refuse_sharded(bound);
  Plan plan = make_plan(bound.tree, world);
  bind(plan, bound);
  return plan;
}

c10::Device device_of(const torch::jit::Module& module) {
  require_module(module);
  for (const at::Tensor& parameter : module.parameters()) return parameter.device();
  return c10::kCPU;
}

std::unique_ptr<ShardedModule> ShardedModule::shard(const torch::jit::Module& module,
                                                    std::shared_ptr<Communicator> communicator,
                                                    const MakePlan& make_plan, const LogFunction& log) {
  register_operators();
  const c10::Device device = device_of(module);
  Plan plan;
  BoundTree bound;
  Binding binding;
  try {
    bound = read_module_tree(module);
    refuse_sharded(bound);
    plan = make_plan(bound.tree, communicator->size());
    binding = bind(plan, bound);
  } catch (...) {
    report_no_start(*communicator, device);
    throw;
  }
  {
    std::vector<at::Tensor> tensors;
    for (const auto& slots : bound.slots) tensors.push_back(slots.front().tensor());
    std::vector<NamedTensor> buffers;
    for (const auto& buffer : module.named_buffers()) buffers.push_back({buffer.name, buffer.value});
    check_same_start(*communicator, bound.tree, plan, tensors, buffers);
  }
  bound.slots.clear();
  auto methods = replace_methods(bound, binding);
  return std::unique_ptr<ShardedModule>(
      new ShardedModule(std::move(plan), std::move(communicator), device, binding, bound, std::move(methods), log));
}

ShardedModule::ShardedModule(Plan plan, std::shared_ptr<Communicator> communicator, c10::Device device,
                             Binding& binding, BoundTree& bound, std::unique_ptr<MethodReplacement> methods,
                             const LogFunction& log)
    : Engine(std::move(plan), std::move(communicator), device, homes_of(binding), log), methods_(std::move(methods)) {
  for (size_t u = 0; u < units().size(); ++u) {
    units()[u]->set_written_attributes(std::move(binding.written_attributes[u]));
  }
  // Parts of a unit too: a unit class may have instances that are none.
  for (size_t m = 0; m < bound.objects.size(); ++m) {
    add_to_unit_table(bound.objects[m], units()[binding.unit_of_module[m]]);
  }
  objects_ = std::move(bound.objects);
  if (log) warn_of_frozen(bound.tree, log);
}

ShardedModule::~ShardedModule() {
  leave();
}

void ShardedModule::leave() {
  // Without a detach the slots hold shards for ever: whoever calls or saves the module must be told.
  const bool lost = !is_detached();
  for (const ObjectPtr& object : objects_) {
    if (lost) {
      mark_lost_in_unit_table(object.get());
    } else {
      remove_from_unit_table(object.get());
    }
  }
  if (lost) static_cast<void>(methods_.release());  // what refuses saving stays
  methods_.reset();                                 // before the objects, which may be the last owners of the classes
  objects_.clear();
}

void ShardedModule::detach() {
  Engine::detach();
  leave();
  drop_slots();
}

}  // namespace fsdp2
