#include "plugin/script/instrument.hpp"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include "plugin/script/operators.hpp"

namespace fsdp2 {

namespace jit = torch::jit;

jit::GraphFunction* copy_method(jit::Function& method) {
  jit::GraphFunction& original = jit::toGraphFunction(method);
  original.ensure_defined();
  auto copy = std::make_unique<jit::GraphFunction>(method.qualname(), original.graph()->copy(), nullptr);
  copy->setSchema(method.getSchema());
  return copy.release();
}

void bracket_with_operators(jit::Graph& graph, std::span<const int64_t> written) {
  const auto symbol = [](const char* name) { return c10::Symbol::fromQualString(name); };
  jit::Value* self = graph.inputs().front();
  const std::vector<jit::Value*> inputs(graph.inputs().begin() + 1, graph.inputs().end());
  jit::Value* output = graph.outputs().front();

  jit::WithInsertPoint at_begin(*graph.block()->nodes().begin());
  jit::Value* written_value = graph.insertConstant(std::vector<int64_t>(written.begin(), written.end()));
  jit::Node* tuple = graph.insertNode(graph.createTuple(inputs));
  jit::Node* pre = graph.insertNode(graph.create(symbol(kPreOperator), {self, tuple->output(), written_value}, 2));
  pre->outputs()[0]->setType(tuple->output()->type());
  pre->outputs()[1]->setType(c10::AnyType::get());
  if (!inputs.empty()) {
    jit::Node* unpacked = graph.insertNode(graph.createTupleUnpack(pre->outputs()[0]));
    for (size_t i = 0; i < inputs.size(); ++i) {
      unpacked->outputs()[i]->setType(inputs[i]->type());
      inputs[i]->replaceAllUsesAfterNodeWith(unpacked, unpacked->outputs()[i]);
      if (output == inputs[i]) output = unpacked->outputs()[i];
    }
  }

  jit::WithInsertPoint at_end(graph.block()->return_node());
  jit::Node* post = graph.insertNode(graph.create(symbol(kPostOperator), {self, output, pre->outputs()[1]}, 1));
  post->output()->setType(output->type());
  graph.block()->replaceOutput(0, post->output());
}

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
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (schema == nullptr || !schema->is_mutable()) return;
    for (size_t a = 0; a < schema->arguments().size() && a < node->inputs().size(); ++a) {
      const auto* alias = schema->arguments()[a].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      for (size_t i = 1; i < written.size(); ++i) {
        jit::Value* input = graph->inputs()[i];
        if (aliases.mayContainAlias(node->inputs()[a], input)) written[i] = true;
      }
    }
  });
  std::vector<int64_t> positions;
  for (size_t i = 1; i < written.size(); ++i) {
    if (written[i]) positions.push_back(static_cast<int64_t>(i) - 1);
  }
  return positions;
}

std::vector<jit::GraphFunction*> make_refusing_state_methods(const c10::ClassTypePtr& type) {
  const auto make = [&](const char* name, bool takes_state) {
    auto graph = std::make_shared<jit::Graph>();
    jit::Value* self = graph->addInput("self")->setType(type);
    if (takes_state) graph->addInput("state")->setType(c10::TensorType::get());
    jit::Node* refuse = graph->insertNode(graph->create(c10::Symbol::fromQualString(kRefuseSaveOperator), {self}, 1));
    refuse->output()->setType(c10::TensorType::get());
    if (takes_state) {
      graph->registerOutput(graph->insertConstant(c10::IValue()));
    } else {
      graph->registerOutput(refuse->output());
    }
    // Leaked like every replaced method: executors cache functions by address.
    return new jit::GraphFunction(c10::QualifiedName(*type->name(), name), std::move(graph), nullptr);
  };
  return {make("__getstate__", false), make("__setstate__", true)};
}

}  // namespace fsdp2
