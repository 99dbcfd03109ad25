#include "plugin/sharded_module.hpp"

#include <algorithm>
#include <set>

#include "plugin/engine/same_start.hpp"
#include "plugin/engine/unit.hpp"
#include "plugin/engine/unit_table.hpp"
#include "plugin/plan_binding.hpp"
#include "plugin/script/bound_tree.hpp"
#include "plugin/script/method_replacement.hpp"
#include "plugin/script/operators.hpp"
#include "registry/error.hpp"
#include "registry/ragged_layout.hpp"

namespace fsdp2 {
namespace {

using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

void require_module(const torch::jit::Module& module) {
  try {
    module._ivalue();
  } catch (const c10::Error&) {
    throw Error(ErrorCode::kInvalidArgument, "the module is empty: load one with torch::jit::load first");
  }
}

std::string describe(const ModuleTree& tree, const Plan& plan) {
  std::string text = to_table(plan);
  for (const TreeParameter& parameter : tree.parameters) {
    for (const std::string& name : parameter.names) text += "\n" + name;
    for (const int64_t size : parameter.shape) text += " " + std::to_string(size);
    text += std::string(" ") + std::string(name_of(parameter.dtype)) + (parameter.trainable ? " trainable" : " frozen");
  }
  return text;
}

void warn_of_other_owners(const std::vector<std::shared_ptr<Unit>>& units, const LogFunction& log) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> names;
  for (const auto& unit : units) {
    names.insert(names.end(), unit->held_elsewhere().begin(), unit->held_elsewhere().end());
  }
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < names.size() && i < kNamed; ++i) list += (i == 0 ? "`" : ", `") + names[i] + "`";
  if (names.size() > kNamed) list += " and " + std::to_string(names.size() - kNamed) + " more";
  log(true, "the original of " + list +
                " is still held elsewhere (another module or tensor of the host), so its memory is not freed");
}

}  // namespace

ModuleTree tree_of(const torch::jit::Module& module) {
  require_module(module);
  BoundTree bound = read_module_tree(module);
  refuse_sharded(bound);
  return std::move(bound.tree);
}

c10::Device device_of(const torch::jit::Module& module) {
  require_module(module);
  for (const at::Tensor& parameter : module.parameters()) return parameter.device();
  return c10::kCPU;
}

struct ShardedModule::Impl {
  Plan plan;
  std::shared_ptr<Runtime> runtime;
  std::vector<std::shared_ptr<Unit>> units;
  std::vector<ObjectPtr> objects;
  std::unique_ptr<MethodReplacement> methods;

  void leave() {
    // Without a detach the slots hold shards for ever: whoever calls or saves the module must be told.
    const bool lost = runtime != nullptr && !runtime->detached;
    for (const ObjectPtr& object : objects) {
      if (lost) {
        mark_lost_in_unit_table(object.get());
      } else {
        remove_from_unit_table(object.get());
      }
    }
    if (lost) static_cast<void>(methods.release());  // what refuses saving stays
    methods.reset();                                 // before the objects, which may be the last owners of the classes
    objects.clear();
    for (const auto& unit : units) unit->drop_slots();
  }

  void require_rest(const char* call) const;

  ~Impl() { leave(); }
};

std::unique_ptr<ShardedModule> ShardedModule::shard(
    const torch::jit::Module& module, std::shared_ptr<Communicator> communicator,
    const std::function<Plan(const ModuleTree&, int64_t world)>& make_plan, const LogFunction& log) {
  register_operators();
  auto impl = std::make_unique<Impl>();
  BoundTree bound;
  Binding binding;
  try {
    bound = read_module_tree(module);
    refuse_sharded(bound);
    impl->plan = make_plan(bound.tree, communicator->size());
    binding = bind(impl->plan, bound);
  } catch (...) {
    report_no_start(*communicator, device_of(module));
    throw;
  }
  const Plan& plan = impl->plan;
  const c10::Device device = device_of(module);
  {
    std::vector<std::string> names;
    std::vector<at::Tensor> tensors;
    for (size_t p = 0; p < bound.tree.parameters.size(); ++p) {
      names.push_back(bound.tree.parameters[p].names[0]);
      tensors.push_back(bound.slots[p].front().tensor());
    }
    check_same_start(*communicator, describe(bound.tree, plan), names, tensors);
  }

  int64_t largest_unit = 0;
  for (const PlannedUnit& unit : plan.units) largest_unit = std::max(largest_unit, unsharded_bytes(plan, unit));
  // Enough for what is whole at once, and the gradients of one unit beside it.
  auto pool = std::make_shared<MemoryPool>(device, static_cast<size_t>(peak_unsharded_bytes(plan) + largest_unit));
  impl->runtime = std::make_shared<Runtime>(std::move(communicator), std::move(pool), plan);
  Runtime& runtime = *impl->runtime;

  std::vector<c10::ClassTypePtr> classes;
  std::set<const c10::ClassType*> known;
  for (const ObjectPtr& object : bound.objects) {
    if (known.insert(object->type().get()).second) classes.push_back(object->type());
  }
  std::set<const c10::ClassType*> unit_classes;
  for (const ObjectPtr& object : binding.unit_objects) unit_classes.insert(object->type().get());
  impl->methods = std::make_unique<MethodReplacement>(std::move(classes), unit_classes);

  WrapMeter meter;
  for (const auto& slots : bound.slots) meter.add(static_cast<int64_t>(slots.front().tensor().nbytes()));
  bound.slots.clear();
  for (size_t u = 0; u < plan.units.size(); ++u) {
    impl->units.push_back(
        std::make_shared<Unit>(impl->runtime, plan.units[u], std::move(binding.unit_slots[u]), meter));
    runtime.units.push_back(impl->units.back());
  }
  for (size_t u = 0; u < plan.units.size(); ++u) {
    impl->units[u]->set_written_attributes(std::move(binding.written_attributes[u]));
  }
  // Parts of a unit too: a unit class may have instances that are none.
  for (size_t m = 0; m < bound.objects.size(); ++m) {
    add_to_unit_table(bound.objects[m], impl->units[binding.unit_of_module[m]]);
  }
  impl->objects = std::move(bound.objects);
  if (log) warn_of_other_owners(impl->units, log);

  Statistics& s = runtime.statistics;
  s.wrap_peak_bytes = meter.peak;
  s.rank = runtime.communicator->rank();
  s.world_size = runtime.communicator->size();
  s.units = static_cast<int64_t>(plan.units.size());
  s.shard_bytes = fsdp2::shard_bytes(plan);
  s.parameter_bytes = fsdp2::parameter_bytes(plan);
  s.planned_peak_bytes = peak_unsharded_bytes(plan);
  for (const PlannedUnit& unit : plan.units) s.padding_bytes += padding_bytes(unit, plan.mesh.shard);
  return std::unique_ptr<ShardedModule>(new ShardedModule(std::move(impl)));
}

ShardedModule::ShardedModule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ShardedModule::~ShardedModule() = default;

void ShardedModule::Impl::require_rest(const char* call) const {
  if (runtime->detached) throw Error(ErrorCode::kFailedPrecondition, "the engine was detached before");
  if (runtime->in_local_use) {
    throw Error(ErrorCode::kFailedPrecondition,
                std::string(call) + " while the parameters are gathered for local use; release them first");
  }
  for (const auto& unit : units) {
    if (unit->is_open()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  std::string(call) + " inside a forward of the sharded module; " + unit->title() + " is running");
    }
  }
}

void ShardedModule::detach() {
  impl_->require_rest("detach()");
  for (const auto& unit : impl_->units) unit->detach();
  impl_->runtime->detached = true;
  impl_->runtime->pool->close();
  impl_->leave();
}

void ShardedModule::begin_local_use() {
  impl_->require_rest("gather()");
  size_t done = 0;
  try {
    for (; done < impl_->units.size(); ++done) impl_->units[done]->begin_local_use();
  } catch (...) {
    for (size_t u = 0; u < done; ++u) impl_->units[u]->end_local_use(false);
    throw;
  }
  impl_->runtime->in_local_use = true;
}

void ShardedModule::end_local_use(bool write_back) {
  if (!impl_->runtime->in_local_use) {
    throw Error(ErrorCode::kFailedPrecondition, "the parameters are not gathered for local use");
  }
  for (const auto& unit : impl_->units) unit->end_local_use(write_back);
  impl_->runtime->in_local_use = false;
}

std::vector<NamedTensor> ShardedModule::parameters() const {
  std::vector<NamedTensor> result;
  for (const auto& unit : impl_->units) {
    for (const UnitParameter& p : unit->parameters()) result.push_back({p.name, p.shard});
  }
  return result;
}

Statistics ShardedModule::statistics() const {
  return impl_->runtime->statistics;
}

void ShardedModule::reset_statistics() {
  Statistics& s = impl_->runtime->statistics;
  s.all_gathers = s.all_gather_bytes = s.reduce_scatters = s.reduce_scatter_bytes = 0;
  s.all_reduces = s.all_reduce_bytes = s.stale_gathers = 0;
  s.unsharded_peak_bytes = s.unsharded_bytes;
}

const Plan& ShardedModule::plan() const {
  return impl_->plan;
}

void ShardedModule::mark_written() {
  for (const auto& unit : impl_->units) unit->mark_written();
}

}  // namespace fsdp2
