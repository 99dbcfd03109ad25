#include "plugin/script/bound_tree.hpp"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "plugin/engine/dtype.hpp"
#include "plugin/engine/tensor_walk.hpp"
#include "plugin/script/attribute_uses.hpp"
#include "plugin/script/frozen_module.hpp"
#include "plugin/script/module_calls.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

/// An overloaded forward (LSTM) is "forward__0", "forward__1".
bool has_forward(const c10::ClassType& type) {
  return std::any_of(type.methods().begin(), type.methods().end(), [](const torch::jit::Function* method) {
    return method->name() == "forward" || method->name().starts_with("forward__");
  });
}

/// Which bytes of which storage belong to a parameter. Tensors of one storage that do not overlap are fine.
class ParameterMemory {
 public:
  void add(const at::Tensor& parameter, const std::string& name) {
    if (const auto bytes = range_of(parameter)) ranges_[storage_of(parameter)].push_back({*bytes, name});
  }

  /// The parameter that shares bytes with the tensor, or null.
  [[nodiscard]] const std::string* owner_of(const at::Tensor& tensor) const {
    const auto bytes = range_of(tensor);
    if (!bytes) return nullptr;
    const auto found = ranges_.find(storage_of(tensor));
    if (found == ranges_.end()) return nullptr;
    for (const Named& known : found->second) {
      if (bytes->first < known.bytes.second && known.bytes.first < bytes->second) return &known.name;
    }
    return nullptr;
  }

 private:
  using Range = std::pair<size_t, size_t>;
  struct Named {
    Range bytes;
    std::string name;
  };

  static const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }
  static std::optional<Range> range_of(const at::Tensor& tensor) {
    if (!tensor.has_storage() || tensor.numel() == 0) return std::nullopt;
    const auto begin = static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    return Range{begin, begin + at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize())};
  }

  std::unordered_map<const void*, std::vector<Named>> ranges_;
};

class Reader {
 public:
  /// `refusals`: null to throw the first one.
  explicit Reader(std::vector<Error>* refusals) : refusals_(refusals) {}

  BoundTree read(const torch::jit::Module& module) {
    visit(module._ivalue(), "", std::nullopt);
    require_parameters();
    for (size_t m = 0; m < bound_.objects.size(); ++m) find_other_holders(m);
    bound_.written_attributes.resize(bound_.objects.size());
    for (size_t m = 0; m < bound_.objects.size(); ++m) find_uses(m);
    find_calls();
    return std::move(bound_);
  }

 private:
  void refuse(Error error) const {
    if (refusals_ == nullptr) throw error;  // NOLINT(performance-*): thrown once
    refusals_->push_back(std::move(error));
  }

  void visit(const ObjectPtr& object, const std::string& path, std::optional<size_t> parent) {
    const size_t index = bound_.tree.modules.size();
    const auto type = object->type();
    TreeModule module;
    module.path = path;
    module.class_name = type->name() ? type->name()->name() : "";
    module.parent = parent;
    module.object = first_entry_.try_emplace(object.get(), index).first->second;
    module.has_forward = has_forward(*type);
    module.frozen = frozen_at(*type);
    bound_.tree.modules.push_back(std::move(module));
    bound_.objects.push_back(object);
    by_path_.emplace(path, index);

    for (size_t i = 0; i < type->numAttributes(); ++i) {
      const std::string name = path.empty() ? type->getAttributeName(i) : path + "." + type->getAttributeName(i);
      const c10::IValue& value = object->getSlot(i);
      if (type->is_parameter(i) && value.isTensor() && value.toTensor().defined()) {
        add_parameter(name, value.toTensor(), index, {object, i});
      } else if (value.isModule()) {
        visit(value.toObject(), name, index);
      }
    }
  }

  /// A frozen part beside others is a matter for the planner, unless nothing else is there.
  void require_parameters() const {
    const std::vector<TreeModule>& modules = bound_.tree.modules;
    if (modules.front().frozen) return refuse(frozen_error(modules.front()));
    if (!bound_.tree.parameters.empty()) return;
    const auto frozen = std::find_if(modules.begin(), modules.end(), [](const auto& m) { return m.frozen; });
    if (frozen != modules.end()) refuse(frozen_error(*frozen));
  }

  void find_calls() {
    ModuleCalls calls = module_calls(bound_.tree, bound_.objects);
    for (size_t m = 0; m < bound_.objects.size(); ++m) bound_.tree.modules[m].called = calls.called[m];
    bound_.forks = std::move(calls.forks);
  }

  void add_parameter(const std::string& name, const at::Tensor& tensor, size_t holder, Slot slot) {
    if (left_out_.contains(tensor.unsafeGetTensorImpl())) return;
    const auto [found, is_new] = by_tensor_.try_emplace(tensor.unsafeGetTensorImpl(), bound_.tree.parameters.size());
    if (is_new) {
      std::optional<TreeParameter> described = describe(name, tensor, bound_.tree.modules[holder].path);
      if (!described) {
        by_tensor_.erase(found);
        left_out_.insert(tensor.unsafeGetTensorImpl());
        return;
      }
      bound_.tree.parameters.push_back(*std::move(described));
      bound_.slots.emplace_back();
    }
    TreeParameter& parameter = bound_.tree.parameters[found->second];
    parameter.names.push_back(name);
    parameter.holders.push_back(holder);
    add_slot(found->second, name, std::move(slot));
    if (is_new) memory_.add(tensor, name);
  }

  void add_slot(size_t parameter, const std::string& name, Slot slot) {
    by_name_[name].insert(parameter);
    auto& slots = bound_.slots[parameter];
    // A module that is reached by two paths has its slots once.
    if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(std::move(slot));
  }

  // Parameters that an attribute holds which is none: an LSTM keeps a list of its weights.
  void find_other_holders(size_t m) {
    const ObjectPtr& object = bound_.objects[m];
    const auto type = object->type();
    const std::string prefix = bound_.tree.modules[m].path.empty() ? "" : bound_.tree.modules[m].path + ".";
    for (size_t i = 0; i < type->numAttributes(); ++i) {
      const c10::IValue& value = object->getSlot(i);
      if (value.isModule() || (type->is_parameter(i) && value.isTensor())) continue;
      const std::string name = prefix + type->getAttributeName(i);
      if (value.isTensor()) {
        look_at(value.toTensor(), name, Slot{object, i});
      } else if (value.isTensorList()) {
        const auto list = value.toTensorList();
        for (size_t k = 0; k < list.size(); ++k) look_at(list.get(k), name, Slot{object, i, k});
      } else {
        for_each_tensor(
            value, [&](const at::Tensor& tensor) { look_at(tensor, name, std::nullopt); }, Objects::kEnter);
      }
    }
  }

  /// `slot`: unset for places that cannot be filled anew.
  void look_at(const at::Tensor& tensor, const std::string& name, std::optional<Slot> slot) {
    if (!tensor.defined()) return;
    const auto known = by_tensor_.find(tensor.unsafeGetTensorImpl());
    if (known != by_tensor_.end() && slot) return add_slot(known->second, name, std::move(*slot));
    const std::string* parameter =
        known != by_tensor_.end() ? &bound_.tree.parameters[known->second].names[0] : memory_.owner_of(tensor);
    if (parameter == nullptr) return;
    const std::string why = known != by_tensor_.end()
                                ? " lies inside the attribute `" + name + "`, which is no list of tensors"
                                : " shares its memory with the attribute `" + name + "`";
    refuse(Error(ErrorCode::kUnsupported,
                 "parameter `" + *parameter + "` cannot be sharded: it" + why +
                     "; export the module with a tensor of its own there",
                 {.parameter = *parameter}));
  }

  /// Nothing for a refused one whose element type has no name here.
  std::optional<TreeParameter> describe(const std::string& name, const at::Tensor& tensor, const std::string& holder) {
    const std::string why = why_not(tensor);
    if (!why.empty()) {
      refuse(Error(ErrorCode::kUnsupported, "parameter `" + name + "` cannot be sharded: " + why,
                   {.module = holder, .parameter = name}));
    }
    const auto dtype = from_torch(tensor.scalar_type());
    if (!dtype) return std::nullopt;
    if (!device_ && why.empty()) device_ = tensor.device();
    TreeParameter parameter;
    parameter.shape = tensor.sizes().vec();
    parameter.dtype = *dtype;
    parameter.trainable = tensor.requires_grad();
    return parameter;
  }

  /// What keeps a parameter from being cut, or nothing.
  [[nodiscard]] std::string why_not(const at::Tensor& tensor) const {
    if (tensor.is_meta()) return "it is on the meta device; load the module with its weights";
    if (tensor.layout() != at::kStrided) return "its layout is " + std::string(c10::str(tensor.layout()));
    if (tensor.is_quantized()) return "it is quantized";
    if (!from_torch(tensor.scalar_type())) {
      return std::string("its element type is ") + c10::toString(tensor.scalar_type());
    }
    if (!tensor.is_contiguous()) {
      return "it is not contiguous (strides " + c10::str(tensor.strides()) + " for shape " + c10::str(tensor.sizes()) +
             "); export the model with contiguous parameters";
    }
    if (const std::string* other = memory_.owner_of(tensor)) {
      return "it shares its memory with `" + *other +
             "` without being the same tensor; tie the two parameters, or clone one";
    }
    if (device_ && tensor.device() != *device_) {
      return "it is on " + tensor.device().str() + ", the parameters before it on " + device_->str() +
             "; move the module to one device first";
    }
    return "";
  }

  void find_uses(size_t m) {
    const auto type = bound_.objects[m]->type();
    auto [found, is_new] = uses_.try_emplace(type.get());
    if (is_new) found->second = {attribute_uses(*type), hook_attribute_uses(*type)};
    const auto& [methods, hooks] = found->second;
    for (const AttributeUse& read : methods.reads) add_reader(name_of(m, read), m);
    for (const AttributeUse& read : hooks.reads) add_hook_reader(name_of(m, read), m);
    for (const auto* writes : {&methods.writes, &hooks.writes}) {
      for (const AttributeUse& write : *writes) {
        const ObjectPtr* owner = object_at(m, write.submodules);
        if (owner == nullptr) continue;
        bound_.written_attributes[m].push_back({*owner, (*owner)->type()->getAttributeSlot(write.attribute)});
      }
    }
  }

  [[nodiscard]] std::string name_of(size_t m, const AttributeUse& use) const {
    std::string name = bound_.tree.modules[m].path;
    const auto append = [&](const std::string& part) { name += (name.empty() ? "" : ".") + part; };
    for (const std::string& part : use.submodules) append(part);
    append(use.attribute);
    return name;
  }

  [[nodiscard]] const ObjectPtr* object_at(size_t m, const std::vector<std::string>& submodules) const {
    std::string path = bound_.tree.modules[m].path;
    for (const std::string& part : submodules) path += (path.empty() ? "" : ".") + part;
    const auto found = by_path_.find(path);
    return found == by_path_.end() ? nullptr : &bound_.objects[found->second];
  }

  // Names come from the tree, so a read that leads elsewhere (a buffer, a constant) finds nothing.
  void add_reader(const std::string& name, size_t m) {
    const auto parameters = by_name_.find(name);
    if (parameters == by_name_.end()) return;
    for (const size_t parameter : parameters->second) {
      auto& readers = bound_.tree.parameters[parameter].readers;
      if (readers.empty() || readers.back() != m) readers.push_back(m);
    }
  }

  // A hook runs in the caller, before the module's first or after its last operation.
  void add_hook_reader(const std::string& name, size_t m) {
    const auto parameters = by_name_.find(name);
    if (parameters == by_name_.end()) return;
    const TreeModule& module = bound_.tree.modules[m];
    if (module.parent) return add_reader(name, *module.parent);
    const std::string& parameter = bound_.tree.parameters[*parameters->second.begin()].names[0];
    refuse(Error(ErrorCode::kUnsupported,
                 "a forward hook of the root reads parameter `" + parameter +
                     "`, outside of every forward that is sharded; read it inside forward",
                 {.parameter = parameter}));
  }

  std::vector<Error>* refusals_;
  BoundTree bound_;
  std::unordered_map<const c10::ivalue::Object*, size_t> first_entry_;
  std::unordered_map<const c10::TensorImpl*, size_t> by_tensor_;
  std::unordered_set<const c10::TensorImpl*> left_out_;        // refused, and of no element type that a tree can name
  std::unordered_map<std::string, std::set<size_t>> by_name_;  // an attribute that is a list may hold several
  std::unordered_map<std::string, size_t> by_path_;
  std::map<const c10::ClassType*, std::pair<AttributeUses, AttributeUses>> uses_;  // of methods, of hooks
  ParameterMemory memory_;
  std::optional<c10::Device> device_;
};

}  // namespace

BoundTree read_module_tree(const torch::jit::Module& module) {
  return Reader(nullptr).read(module);
}

BoundTree read_module_tree(const torch::jit::Module& module, std::vector<Error>& refusals) {
  return Reader(&refusals).read(module);
}

}  // namespace fsdp2
