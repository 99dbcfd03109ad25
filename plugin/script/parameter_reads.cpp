#include "plugin/script/parameter_reads.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <unordered_map>

namespace fsdp2 {
namespace {

namespace jit = torch::jit;

// Values that are modules, with their path below self.
using ModuleValues = std::unordered_map<const jit::Value*, std::vector<std::string>>;

bool is_module(const c10::TypePtr& type) {
  if (const auto class_type = type->cast<c10::ClassType>()) return class_type->is_module();
  if (const auto interface = type->cast<c10::InterfaceType>()) return interface->is_module();
  return false;
}

void collect(const jit::Block& block, ModuleValues& modules, std::vector<AttributeRead>& reads) {
  for (const jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::GetAttr) {
      const auto owner = modules.find(node->input());
      if (owner != modules.end()) {
        const std::string& name = node->s(c10::attr::name);
        if (is_module(node->output()->type())) {
          auto path = owner->second;
          path.push_back(name);
          modules.emplace(node->output(), std::move(path));
        } else {
          reads.push_back({owner->second, name});
        }
      }
    }
    for (const jit::Block* inner : node->blocks()) collect(*inner, modules, reads);
  }
}

}  // namespace

std::vector<AttributeRead> attribute_reads(const c10::ClassType& type) {
  std::vector<AttributeRead> reads;
  for (jit::Function* method : type.methods()) {
    auto& function = jit::toGraphFunction(*method);
    function.ensure_defined();
    const std::shared_ptr<jit::Graph> graph = function.graph();
    ModuleValues modules{{graph->inputs().front(), {}}};
    collect(*graph->block(), modules, reads);
  }
  return reads;
}

}  // namespace fsdp2
