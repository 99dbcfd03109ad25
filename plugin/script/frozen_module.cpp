#include "plugin/script/frozen_module.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include "plugin/script/node_place.hpp"

namespace fsdp2 {
namespace {

namespace jit = torch::jit;

bool is_weight(const jit::Node& node) {
  if (node.kind() != c10::prim::Constant || !node.hasAttribute(c10::attr::value)) return false;
  if (node.kindOf(c10::attr::value) != jit::AttributeKind::t) return false;
  const at::Tensor& tensor = node.t(c10::attr::value);
  return (tensor.is_floating_point() || tensor.is_complex()) && tensor.dim() > 0;
}

const jit::Node* find_weight(const jit::Block& block) {
  for (const jit::Node* node : block.nodes()) {
    if (is_weight(*node)) return node;
    for (const jit::Block* inner : node->blocks()) {
      if (const jit::Node* found = find_weight(*inner)) return found;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<CodePlace> frozen_at(const c10::ClassType& type) {
  // Every module has this attribute until it is frozen.
  if (type.hasAttribute("training")) return std::nullopt;
  for (jit::Function* method : type.methods()) {
    auto& function = jit::toGraphFunction(*method);
    function.ensure_defined();
    const std::shared_ptr<jit::Graph> graph = function.graph();
    const jit::Node* weight = find_weight(*graph->block());
    if (weight == nullptr) continue;
    const auto& uses = weight->output()->uses();
    return place_of(uses.empty() ? *weight : *uses.front().user);
  }
  return std::nullopt;
}

}  // namespace fsdp2
