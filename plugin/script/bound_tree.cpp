#include "plugin/script/bound_tree.hpp"

#include <map>
#include <unordered_map>

#include "plugin/engine/dtype.hpp"
#include "plugin/script/parameter_reads.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

class Reader {
 public:
  BoundTree read(const torch::jit::Module& module) {
    visit(module._ivalue(), "", std::nullopt);
    for (size_t m = 0; m < bound_.objects.size(); ++m) find_readers(m);
    return std::move(bound_);
  }

 private:
  void visit(const ObjectPtr& object, const std::string& path, std::optional<size_t> parent) {
    const size_t index = bound_.tree.modules.size();
    const auto type = object->type();
    TreeModule module;
    module.path = path;
    module.class_name = type->name() ? type->name()->name() : "";
    module.parent = parent;
    module.object = first_entry_.try_emplace(object.get(), index).first->second;
    module.has_forward = type->findMethod("forward") != nullptr;
    bound_.tree.modules.push_back(std::move(module));
    bound_.objects.push_back(object);

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

  void add_parameter(const std::string& name, const at::Tensor& tensor, size_t holder, Slot slot) {
    const auto [found, is_new] = by_tensor_.try_emplace(tensor.unsafeGetTensorImpl(), bound_.tree.parameters.size());
    if (is_new) {
      bound_.tree.parameters.push_back(describe(name, tensor));
      bound_.slots.emplace_back();
    }
    TreeParameter& parameter = bound_.tree.parameters[found->second];
    parameter.names.push_back(name);
    parameter.holders.push_back(holder);
    by_name_.emplace(name, found->second);
    // A module that is reached by two paths has its slots once.
    for (const Slot& known : bound_.slots[found->second]) {
      if (known.object == slot.object && known.index == slot.index) return;
    }
    bound_.slots[found->second].push_back(std::move(slot));
  }

  TreeParameter describe(const std::string& name, const at::Tensor& tensor) {
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorCode::kUnsupported, "parameter `" + name + "` cannot be sharded: " + why, {.parameter = name});
    };
    if (tensor.is_meta()) refuse("it is on the meta device; load the module with its weights");
    if (tensor.layout() != at::kStrided) refuse("its layout is " + std::string(c10::str(tensor.layout())));
    if (tensor.is_quantized()) refuse("it is quantized");
    const auto dtype = from_torch(tensor.scalar_type());
    if (!dtype) refuse(std::string("its element type is ") + c10::toString(tensor.scalar_type()));
    if (!tensor.is_contiguous()) {
      refuse("it is not contiguous (strides " + c10::str(tensor.strides()) + " for shape " + c10::str(tensor.sizes()) +
             "); export the model with contiguous parameters");
    }
    if (!device_) device_ = tensor.device();
    if (tensor.device() != *device_) {
      refuse("it is on " + tensor.device().str() + ", the parameters before it on " + device_->str() +
             "; move the module to one device first");
    }
    TreeParameter parameter;
    parameter.shape = tensor.sizes().vec();
    parameter.dtype = *dtype;
    parameter.trainable = tensor.requires_grad();
    return parameter;
  }

  // Names come from the tree, so a read that leads elsewhere (a buffer, a constant) finds nothing.
  void find_readers(size_t m) {
    const auto type = bound_.objects[m]->type();
    auto [found, is_new] = reads_.try_emplace(type.get());
    if (is_new) found->second = attribute_reads(*type);
    for (const AttributeRead& read : found->second) {
      std::string name = bound_.tree.modules[m].path;
      const auto append = [&](const std::string& part) { name += (name.empty() ? "" : ".") + part; };
      for (const std::string& part : read.submodules) append(part);
      append(read.attribute);
      const auto parameter = by_name_.find(name);
      if (parameter == by_name_.end()) continue;
      auto& readers = bound_.tree.parameters[parameter->second].readers;
      if (readers.empty() || readers.back() != m) readers.push_back(m);
    }
  }

  BoundTree bound_;
  std::unordered_map<const c10::ivalue::Object*, size_t> first_entry_;
  std::unordered_map<const c10::TensorImpl*, size_t> by_tensor_;
  std::unordered_map<std::string, size_t> by_name_;
  std::map<const c10::ClassType*, std::vector<AttributeRead>> reads_;
  std::optional<c10::Device> device_;
};

}  // namespace

BoundTree read_module_tree(const torch::jit::Module& module) {
  return Reader().read(module);
}

}  // namespace fsdp2
