#include "plugin/script/attribute_uses.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

namespace fsdp2 {
namespace {

namespace jit = torch::jit;

// Values that are modules, with their path below self.
using ModuleValues = std::unordered_map<const jit::Value*, std::vector<std::string>>;

bool is_changeable(const c10::Type& type) {
  const c10::TypeKind kind = type.kind();
  return kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType || kind == c10::TypeKind::ClassType;
}

/// Whether the node puts something into a list, a dict or an object that it gets, or may hand it to what does.
bool may_fill(const jit::Use& use) {
  const c10::Symbol kind = use.user->kind();
  if (kind == c10::prim::CallMethod || kind == c10::prim::CallFunction || kind == c10::prim::fork) return true;
  if (kind == c10::prim::SetAttr) return use.offset == 0;
  const c10::FunctionSchema* schema = use.user->maybeSchema();
  if (schema == nullptr || use.offset >= schema->arguments().size()) return false;
  const auto* alias = schema->arguments()[use.offset].alias_info();
  return alias != nullptr && alias->isWrite();
}

bool may_be_filled(const jit::Value& value) {
  return is_changeable(*value.type()) && std::any_of(value.uses().begin(), value.uses().end(), may_fill);
}

void collect(const jit::Block& block, ModuleValues& modules, AttributeUses& uses) {
  for (const jit::Node* node : block.nodes()) {
    const bool reads = node->kind() == c10::prim::GetAttr;
    if (reads || node->kind() == c10::prim::SetAttr) {
      const auto owner = modules.find(node->inputs()[0]);
      if (owner != modules.end()) {
        const std::string& name = node->s(c10::attr::name);
        if (!reads) {
          uses.writes.push_back({owner->second, name});
        } else if (is_module(node->output()->type())) {
          auto path = owner->second;
          path.push_back(name);
          modules.emplace(node->output(), std::move(path));
        } else {
          uses.reads.push_back({owner->second, name});
          if (may_be_filled(*node->output())) uses.writes.push_back({owner->second, name});
        }
      }
    }
    for (const jit::Block* inner : node->blocks()) collect(*inner, modules, uses);
  }
}

AttributeUses uses_in(const std::vector<jit::Function*>& functions) {
  AttributeUses uses;
  for (jit::Function* each : functions) {
    auto& function = jit::toGraphFunction(*each);
    function.ensure_defined();
    const std::shared_ptr<jit::Graph> graph = function.graph();
    ModuleValues modules{{graph->inputs().front(), {}}};
    collect(*graph->block(), modules, uses);
  }
  return uses;
}

}  // namespace

bool is_module(const c10::TypePtr& type) {
  if (const auto class_type = type->cast<c10::ClassType>()) return class_type->is_module();
  if (const auto interface = type->cast<c10::InterfaceType>()) return interface->is_module();
  return false;
}

AttributeUses attribute_uses(const c10::ClassType& type) {
  return uses_in(type.methods());
}

AttributeUses hook_attribute_uses(const c10::ClassType& type) {
  std::vector<jit::Function*> hooks = type.getForwardPreHooks();
  hooks.insert(hooks.end(), type.getForwardHooks().begin(), type.getForwardHooks().end());
  return uses_in(hooks);
}

}  // namespace fsdp2
