#include "plugin/script/written_inputs.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <functional>

namespace fsdp2 {

namespace jit = torch::jit;

namespace {

// Nodes of a block and the blocks in it.
void for_each_node(jit::Block* block, const std::function<void(jit::Node*)>& visit) {
  for (jit::Node* node : block->nodes()) {
    visit(node);
    for (jit::Block* inner : node->blocks()) for_each_node(inner, visit);
  }
}

}  // namespace

std::vector<int64_t> written_inputs(jit::Function& method) {
  jit::GraphFunction& function = jit::toGraphFunction(method);
  function.ensure_defined();
  const std::shared_ptr<jit::Graph> graph = function.graph()->copy();
  jit::Inline(*graph);
  const jit::AliasDb aliases(graph);
  std::vector<bool> written(graph->inputs().size(), false);
  for_each_node(graph->block(), [&](jit::Node* node) {
    // An attribute of a module is none of the inputs, though AliasDb cannot tell: else every BatchNorm would write to
    // all.
    const auto mark = [&](jit::Value* value) {
      if (value->node()->kind() == c10::prim::GetAttr) return;
      for (size_t i = 1; i < written.size(); ++i) {
        if (aliases.mayContainAlias(value, graph->inputs()[i])) written[i] = true;
      }
    };
    // What could not be inlined (a module behind an interface, a fork) may write to whatever it gets.
    const c10::Symbol kind = node->kind();
    if (kind == c10::prim::CallMethod || kind == c10::prim::CallFunction || kind == c10::prim::fork) {
      for (jit::Value* value : node->inputs()) mark(value);
    }
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (schema == nullptr || !schema->is_mutable()) return;
    for (size_t a = 0; a < schema->arguments().size() && a < node->inputs().size(); ++a) {
      const auto* alias = schema->arguments()[a].alias_info();
      if (alias != nullptr && alias->isWrite()) mark(node->inputs()[a]);
    }
  });
  std::vector<int64_t> positions;
  for (size_t i = 1; i < written.size(); ++i) {
    if (written[i]) positions.push_back(static_cast<int64_t>(i) - 1);
  }
  return positions;
}

}  // namespace fsdp2
