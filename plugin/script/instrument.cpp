#include "plugin/script/instrument.hpp"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inline_fork_wait.h>

#include "plugin/script/operators.hpp"

namespace fsdp2 {

namespace jit = torch::jit;

namespace {

/// Whether each future goes into waits only: not into a list, or out of the method.
bool forks_are_waited_for(const jit::Block& block) {
  for (const jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::fork) {
      for (const jit::Use& use : node->output()->uses()) {
        if (use.user->kind() != c10::aten::wait) return false;
      }
    }
    for (const jit::Block* inner : node->blocks()) {
      if (!forks_are_waited_for(*inner)) return false;
    }
  }
  return true;
}

}  // namespace

jit::GraphFunction* copy_method(jit::Function& method) {
  jit::GraphFunction& original = jit::toGraphFunction(method);
  original.ensure_defined();
  std::shared_ptr<jit::Graph> graph = original.graph()->copy();
  // A fork would run in the optimising executor, and what comes after its wait in another thread.
  if (forks_are_waited_for(*graph->block())) jit::InlineForkWait(graph);
  auto copy = std::make_unique<jit::GraphFunction>(method.qualname(), std::move(graph), nullptr);
  copy->setSchema(method.getSchema());
  // Run as it is written. The optimising executor differentiates by formulas of its own: wrong ones around no_grad(),
  // more memory than autograd's, and minutes of passes over a deep traced model. On CPUs its steps are no shorter.
  copy->_set_initial_executor_execution_mode(jit::ExecutorExecutionMode::SIMPLE);
  return copy.release();
}

void bracket_with_operators(jit::Graph& graph, std::span<const int64_t> written) {
  const auto symbol = [](const char* name) { return c10::Symbol::fromQualString(name); };
  jit::Value* self = graph.inputs().front();
  const std::vector<jit::Value*> inputs(graph.inputs().begin() + 1, graph.inputs().end());

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
    }
  }

  jit::Value* output = graph.outputs().front();
  jit::WithInsertPoint at_end(graph.block()->return_node());
  jit::Node* post = graph.insertNode(graph.create(symbol(kPostOperator), {self, output, pre->outputs()[1]}, 1));
  post->output()->setType(output->type());
  graph.block()->replaceOutput(0, post->output());
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
