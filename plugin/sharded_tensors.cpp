#include "plugin/sharded_tensors.hpp"

#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "plugin/engine/dtype.hpp"
#include "plugin/engine/same_start.hpp"
#include "registry/error.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

/// The tensors that engines of this process have made shards of: nothing in the tensors themselves tells.
class ShardedTable {
 public:
  void add(const at::Tensor& tensor) {
    const std::scoped_lock lock(mutex_);
    entries_.insert_or_assign(tensor.unsafeGetTensorImpl(), Weak(tensor.getIntrusivePtr()));
  }
  void remove(const at::Tensor& tensor) {
    const std::scoped_lock lock(mutex_);
    entries_.erase(tensor.unsafeGetTensorImpl());
  }
  bool holds(const at::Tensor& tensor) {
    const std::scoped_lock lock(mutex_);
    const auto found = entries_.find(tensor.unsafeGetTensorImpl());
    if (found == entries_.end()) return false;
    if (!found->second.expired()) return true;
    entries_.erase(found);  // another tensor, at the address of one that is gone
    return false;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  std::mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Weak> entries_;
};

// Leaked on purpose: destructors at exit may run after LibTorch's own.
ShardedTable& sharded_tensors() {
  static auto& table = *new ShardedTable;
  return table;
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "parameter `" + name + "` " + why, {.parameter = name});
}

void check_tensor(const NamedTensor& parameter, const at::Tensor& first) {
  const auto& [name, tensor] = parameter;
  if (!tensor.defined()) refuse(name, "is not defined");
  if (sharded_tensors().holds(tensor))
    refuse(name, "is sharded already, by an engine that lives or ended without detach()");
  if (tensor.is_inference()) refuse(name, "is an inference tensor; clone it outside InferenceMode");
  if (!tensor.is_leaf()) refuse(name, "is not a leaf: it is a result of other tensors");
  if (tensor.is_sparse() || tensor.is_quantized() || tensor.is_meta())
    refuse(name, "is not a dense tensor with memory");
  if (!tensor.is_contiguous()) refuse(name, "is not contiguous; replace it by its .contiguous()");
  if (tensor.dim() == 0) refuse(name, "has no dimensions; give it the shape [1]");
  if (tensor.is_view()) refuse(name, "is a view of another tensor; replace it by its .clone()");
  if (tensor.device() != first.device()) {
    refuse(name, "is on " + tensor.device().str() + ", others on " + first.device().str());
  }
}

/// The part of a dotted name before its last dot.
std::string holder_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// Modules by their paths, a parent before its children.
class Modules {
 public:
  explicit Modules(std::vector<TreeModule>& modules) : modules_(modules) { add("", std::nullopt); }

  /// Index of the module at `path`; itself and its parents are added where they are new.
  size_t at(const std::string& path) {
    const auto found = indices_.find(path);
    return found != indices_.end() ? found->second : add(path, at(holder_of(path)));
  }

 private:
  size_t add(const std::string& path, std::optional<size_t> parent) {
    const size_t index = modules_.size();
    modules_.push_back({path, "", parent, index, /*has_forward=*/true});
    return indices_[path] = index;
  }

  std::vector<TreeModule>& modules_;
  std::unordered_map<std::string, size_t> indices_;
};

DType dtype_of(const NamedTensor& parameter) {
  const auto dtype = from_torch(parameter.tensor.scalar_type());
  if (!dtype)
    refuse(parameter.name, std::string("has elements of type ") + c10::toString(parameter.tensor.scalar_type()));
  return *dtype;
}

}  // namespace

ModuleTree tree_of(std::span<const NamedTensor> parameters) {
  if (parameters.empty()) throw Error(ErrorCode::kInvalidArgument, "there are no parameters to shard");
  ModuleTree tree;
  Modules modules(tree.modules);
  std::unordered_map<const void*, size_t> tensors;  // to its entry in the tree
  std::unordered_map<const void*, size_t> memory;   // to the first parameter that lies there
  std::unordered_set<std::string> names;
  for (const NamedTensor& parameter : parameters) {
    const auto& [name, tensor] = parameter;
    if (name.empty() || name.front() == '.' || name.back() == '.' || name.find("..") != std::string::npos)
      refuse(name, "has no valid name: expected names as \"layers.0.weight\"");
    check_tensor(parameter, parameters.front().tensor);
    if (!names.insert(name).second) refuse(name, "is given twice");
    const size_t holder = modules.at(holder_of(name));
    const auto [known, is_new] = tensors.emplace(tensor.unsafeGetTensorImpl(), tree.parameters.size());
    if (is_new) {
      if (tensor.numel() > 0) {
        const auto [owner, alone] = memory.emplace(tensor.storage().unsafeGetStorageImpl(), tree.parameters.size());
        if (!alone) {
          refuse(name, "shares its memory with `" + tree.parameters[owner->second].names[0] +
                           "` without being the same tensor; tie them as one tensor, or clone one");
        }
      }
      tree.parameters.push_back(
          {{name}, tensor.sizes().vec(), dtype_of(parameter), tensor.requires_grad(), {holder}, {holder}});
    } else {
      TreeParameter& tied = tree.parameters[known->second];
      tied.names.push_back(name);
      tied.holders.push_back(holder);
      tied.readers.push_back(holder);
    }
  }
  return tree;
}

c10::Device device_of(std::span<const NamedTensor> parameters) {
  if (parameters.empty() || !parameters.front().tensor.defined()) return c10::kCPU;
  return parameters.front().tensor.device();
}

std::unique_ptr<ShardedTensors> ShardedTensors::shard(std::span<const NamedTensor> parameters,
                                                      std::shared_ptr<Communicator> communicator,
                                                      const MakePlan& make_plan, const LogFunction& log) {
  const c10::Device device = device_of(parameters);
  ModuleTree tree;
  Plan plan;
  std::unordered_map<std::string, at::Tensor> by_name;
  try {
    tree = tree_of(parameters);
    plan = make_plan(tree, communicator->size());
  } catch (...) {
    report_no_start(*communicator, device);
    throw;
  }
  for (const NamedTensor& parameter : parameters) by_name.emplace(parameter.name, parameter.tensor);
  {
    std::vector<at::Tensor> tensors;
    for (const TreeParameter& parameter : tree.parameters) tensors.push_back(by_name.at(parameter.names[0]));
    check_same_start(*communicator, tree, plan, tensors);
  }
  std::vector<std::vector<ParameterHome>> homes;
  for (const PlannedUnit& unit : plan.units) {
    auto& of_unit = homes.emplace_back();
    for (const PlannedParameter& parameter : unit.parameters)
      of_unit.push_back(ParameterHome::of_host(by_name.at(parameter.name)));
  }
  return std::unique_ptr<ShardedTensors>(
      new ShardedTensors(std::move(plan), std::move(communicator), device, std::move(homes), tree, log));
}

ShardedTensors::ShardedTensors(Plan plan, std::shared_ptr<Communicator> communicator, c10::Device device,
                               std::vector<std::vector<ParameterHome>> homes, const ModuleTree& tree,
                               const LogFunction& log)
    : Engine(std::move(plan), std::move(communicator), device, std::move(homes), log) {
  for (const TreeModule& module : tree.modules) modules_.emplace(module.path, std::nullopt);
  for (size_t u = 0; u < units().size(); ++u) modules_[units()[u]->path()] = u;
  for (const NamedTensor& parameter : parameters()) sharded_tensors().add(parameter.tensor);
}

void ShardedTensors::detach() {
  const std::vector<NamedTensor> whole_again = parameters();
  Engine::detach();
  for (const NamedTensor& parameter : whole_again) sharded_tensors().remove(parameter.tensor);
}

c10::intrusive_ptr<UnitCall> ShardedTensors::enter(const std::string& path) {
  const auto found = modules_.find(path);
  if (found == modules_.end()) {
    std::vector<std::string> paths;
    for (const auto& [known, unit] : modules_) paths.push_back(known);
    const std::string nearest = nearest_name(path, paths);
    throw Error(ErrorCode::kNotFound, "no module `" + path + "` holds parameters" + did_you_mean(nearest),
                {.module = path, .nearest = nearest});
  }
  if (!found->second) return {};
  const auto& unit = units()[*found->second];
  if (unit->in_local_use()) return {};
  unit->require_caller();
  if (unit->is_open()) return {};
  return c10::make_intrusive<UnitCall>(unit);
}

}  // namespace fsdp2
