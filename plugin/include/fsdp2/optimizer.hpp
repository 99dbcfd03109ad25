// An optimizer that was made before its module is sharded. Header-only, for C++ hosts; needs LibTorch's optimizers.
//
//   torch::optim::AdamW optimizer(parameters_of_the_module, 1e-3);       // groups, options, as the host made them
//   fsdp2::OptimizerBinding binding(module, optimizer);
//   auto engine = plugin.shard(module, config);
//   binding.bind(engine.named_parameters());
#ifndef FSDP2_OPTIMIZER_HPP
#define FSDP2_OPTIMIZER_HPP

#include <ATen/core/Tensor.h>
#include <fsdp2/plugin.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>
#include <fsdp2/detail/library.hpp>

#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fsdp2 {
inline namespace v0_1 {

/// Takes the parameters of a module out of an optimizer, by their names, so that shard() can free them; then puts their
/// shards in. Groups, their options and the order in them stay. A parameter that is listed twice (LibTorch's
/// `parameters()` lists a tied one under each name) is put in once: else the optimizer would step it twice. Tensors
/// that do not belong to the module stay where they are. [trainer]
class OptimizerBinding {
 public:
  /// Throws FSDP2_FAILED_PRECONDITION, naming the parameter, where the optimizer has state for one: state of whole
  /// parameters does not fit shards. Nothing is changed then. Module and optimizer must outlive this object.
  OptimizerBinding(const torch::jit::Module& module, torch::optim::Optimizer& optimizer)
      : module_(module), optimizer_(optimizer) {
    std::unordered_map<const void*, std::vector<std::string>> names;
    for (const auto& parameter : module.named_parameters()) {
      names[parameter.value.unsafeGetTensorImpl()].push_back(parameter.name);
    }
    std::set<const void*> seen;
    for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
      std::vector<Entry>& entries = groups_.emplace_back();
      for (const at::Tensor& tensor : group.params()) {
        const auto known = names.find(tensor.unsafeGetTensorImpl());
        if (known == names.end()) {
          entries.push_back({{}, tensor});
          continue;
        }
        if (optimizer.state().count(tensor.unsafeGetTensorImpl()) != 0) {
          Exception fault(FSDP2_FAILED_PRECONDITION,
                          "the optimizer has state for parameter `" + known->second.front() +
                              "` already, which does not fit its shard: shard the module before the first step");
          fault.parameter = known->second.front();
          throw fault;
        }
        if (seen.insert(tensor.unsafeGetTensorImpl()).second) entries.push_back({known->second, {}});
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g) optimizer.param_groups()[g].params().clear();
  }

  /// Gives the module's own parameters back to the optimizer if nothing was bound (shard() failed).
  ~OptimizerBinding() {
    if (groups_.empty()) return;
    std::vector<std::pair<std::string, at::Tensor>> own;
    for (const auto& parameter : module_.named_parameters()) own.emplace_back(parameter.name, parameter.value);
    try {
      bind(own);
    } catch (const Exception&) {  // the module lost a parameter meanwhile: the groups stay empty
    }
  }
  OptimizerBinding(const OptimizerBinding&) = delete;
  OptimizerBinding& operator=(const OptimizerBinding&) = delete;

  /// `parameters`: Engine::named_parameters(). Throws FSDP2_NOT_FOUND for a parameter that has no shard among them.
  void bind(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
    std::unordered_map<std::string, at::Tensor> by_name(parameters.begin(), parameters.end());
    if (knows_any(by_name)) {  // parameters of `ignored_modules` are the module's own still
      for (const auto& parameter : module_.named_parameters()) by_name.emplace(parameter.name, parameter.value);
    }
    std::vector<std::vector<at::Tensor>> filled;
    for (const std::vector<Entry>& entries : groups_) {
      std::vector<at::Tensor>& tensors = filled.emplace_back();
      for (const Entry& entry : entries) tensors.push_back(tensor_of(entry, by_name));
    }
    for (size_t g = 0; g < filled.size(); ++g) optimizer_.param_groups()[g].params() = std::move(filled[g]);
    groups_.clear();
  }

 private:
  struct Entry {
    std::vector<std::string> names;  // all names of a parameter of the module
    at::Tensor other;                // or a tensor that is none
  };

  /// Else `by_name` is of another module.
  [[nodiscard]] bool knows_any(const std::unordered_map<std::string, at::Tensor>& by_name) const {
    for (const std::vector<Entry>& entries : groups_) {
      for (const Entry& entry : entries) {
        for (const std::string& name : entry.names) {
          if (by_name.count(name) != 0) return true;
        }
      }
    }
    return false;
  }

  static at::Tensor tensor_of(const Entry& entry, const std::unordered_map<std::string, at::Tensor>& by_name) {
    if (entry.names.empty()) return entry.other;
    for (const std::string& name : entry.names) {
      if (const auto found = by_name.find(name); found != by_name.end()) return found->second;
    }
    Exception fault(FSDP2_NOT_FOUND, "no shard is called `" + entry.names.front() +
                                         "`: give the parameters of the engine that shards this optimizer's module");
    fault.parameter = entry.names.front();
    throw fault;
  }

  torch::jit::Module module_;
  torch::optim::Optimizer& optimizer_;
  std::vector<std::vector<Entry>> groups_;
};

}  // namespace v0_1
}  // namespace fsdp2

#endif  // FSDP2_OPTIMIZER_HPP
