#include "plugin/cli/model_facts.hpp"

#include <ATen/core/class_type.h>

#include <algorithm>
#include <map>
#include <utility>

#include "plugin/checkpoint/module_archive.hpp"
#include "plugin/script/bound_tree.hpp"
#include "registry/code_place.hpp"

namespace fsdp2::cli {
namespace {

int64_t own_buffer_bytes(const c10::ivalue::Object& object) {
  const auto type = object.type();
  int64_t bytes = 0;
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    const c10::IValue& value = object.getSlot(i);
    if (!type->is_buffer(i) || !value.isTensor() || !value.toTensor().defined()) continue;
    if (value.toTensor().layout() == at::kStrided) bytes += static_cast<int64_t>(value.toTensor().nbytes());
  }
  return bytes;
}

bool returns_future(const c10::ClassType& type) {
  const auto& methods = type.methods();
  return std::any_of(methods.begin(), methods.end(), [](const torch::jit::Function* method) {
    const auto& returns = method->getSchema().returns();
    return std::any_of(returns.begin(), returns.end(),
                       [](const c10::Argument& result) { return result.type()->kind() == c10::TypeKind::FutureType; });
  });
}

/// As units they would be refused, by the plan's binding or when they run.
std::string why_no_unit(const BoundTree& bound, size_t m) {
  if (m == 0) return "";
  if (bound.forks[m]) return "runs inside torch.jit.fork" + in_brackets(*bound.forks[m]);
  if (returns_future(*bound.objects[m]->type())) return "returns a future of torch.jit.fork";
  return "";
}

/// A line a class, of the outermost modules.
void add_unfit_remarks(ModelFacts& facts) {
  std::map<std::string, std::vector<size_t>> by_class;
  for (size_t m = 1; m < facts.unfit.size(); ++m) {
    const TreeModule& module = facts.tree.modules[m];
    if (!facts.unfit[m].empty() && facts.unfit[*module.parent].empty()) by_class[module.class_name].push_back(m);
  }
  for (const auto& [name, modules] : by_class) {
    const size_t first = modules.front();
    const std::string others = modules.size() == 1 ? "" : " (as " + std::to_string(modules.size() - 1) + " more do)";
    facts.remarks.push_back("`" + facts.tree.modules[first].path + "`, of class " + name + ", " + facts.unfit[first] +
                            others + ": it cannot be a unit");
  }
}

}  // namespace

ModelFacts read_model_facts(const std::string& path) {
  const ModuleArchive archive(path);
  ModelFacts facts;
  BoundTree bound = read_module_tree(archive.module(), facts.refusals);
  facts.tree = std::move(bound.tree);
  const ModuleTree& tree = facts.tree;
  for (const TreeParameter& parameter : tree.parameters) {
    if (parameter.shape.empty()) facts.refusals.push_back(no_dimensions_error(tree, parameter));
  }
  if (tree.parameters.empty() && facts.refusals.empty()) {
    facts.refusals.emplace_back(ErrorCode::kUnsupported, "the model has no parameters: there is nothing to shard");
  }
  for (size_t m = 0; m < tree.modules.size(); ++m) {
    facts.buffer_bytes.push_back(own_buffer_bytes(*bound.objects[m]));
    facts.unfit.push_back(why_no_unit(bound, m));
  }
  add_unfit_remarks(facts);
  if (facts.refusals.empty()) {
    for (const TreeModule& module : tree.modules) {
      if (module.frozen) facts.remarks.emplace_back(frozen_error(module).what());
    }
  }
  return facts;
}

}  // namespace fsdp2::cli
