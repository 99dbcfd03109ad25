// Operators that a graph pass removes, and gradients that change when the executor specialises.
#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/profiling_graph_executor_impl.h>
#include <torch/optim/sgd.h>

#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/harness/training.hpp"

namespace fsdp2::testing {
namespace {
namespace jit = torch::jit;

void list_operators(const jit::Block* block, std::vector<std::string>& names) {
  for (const jit::Node* node : block->nodes()) {
    if (std::string(node->kind().ns().toUnqualString()) == "fsdp2_plugin")
      names.push_back(node->kind().toUnqualString());
    for (const jit::Block* inner : node->blocks()) list_operators(inner, names);
  }
}

std::vector<std::string> operators_of(const jit::Graph& graph) {
  std::vector<std::string> names;
  list_operators(graph.block(), names);
  return names;
}

void usual_passes(std::shared_ptr<jit::Graph>& graph) {
  jit::Inline(*graph);
  jit::EliminateDeadCode(graph);
  jit::EliminateCommonSubexpression(graph);
  jit::ConstantPropagation(graph);
  jit::PeepholeOptimize(graph);
  jit::LowerSimpleTuples(graph);
  jit::EliminateDeadCode(graph);
  jit::ConstantPooling(graph);
  jit::EliminateDeadCode(graph);
}

const std::map<std::pair<int64_t, int64_t>, std::vector<double>> kLosses{
    {{1, 0}, {0.958553, 0.874588, 0.806716, 0.744200, 0.686457, 0.634785}},
    {{2, 0}, {0.958553, 0.874846, 0.806612, 0.743266, 0.684296, 0.632204}},
    {{2, 1}, {1.006004, 0.911899, 0.836971, 0.767084, 0.701674, 0.642684}},
    {{4, 0}, {0.958553, 0.875816, 0.807785, 0.744029, 0.684140, 0.631553}}};
const std::vector<double> kSumsOfTwo{-0.237288, -0.091993, -0.071799, 0.627569};

void count_operators(RankContext& context, const std::string& model) {
  const auto module = load(context, model);
  Sharding sharding;
  sharding.modules = {"first", "second"};
  const auto sharded = shard(context, module, sharding);
  // The parameters lie in the two units; the root is one too, and each brackets its forward.
  size_t in_classes = 0;
  for (const char* child : {"first", "second"}) {
    const auto operators = operators_of(*module.attr(child).toModule().get_method("forward").graph());
    ASSERT_FALSE(operators.empty());
    in_classes += operators.size();
  }
  const size_t in_root = operators_of(*module.get_method("forward").graph()).size();
  EXPECT_GT(in_root, 0U);
  auto graph = module.get_method("forward").graph()->copy();
  jit::Inline(*graph);
  const auto before = operators_of(*graph);
  EXPECT_EQ(before.size(), in_root + in_classes);
  EXPECT_EQ(before.size() % 3, 0U) << "the same operators around each of the three";
  for (int round = 0; round < 2; ++round) {
    usual_passes(graph);
    EXPECT_EQ(operators_of(*graph), before) << "a pass removed or moved an operator";
  }
}

/// Operators bracket each unit's work: what lies between is that unit's matrix product.
void order_of_operators(RankContext& context, const std::string& model) {
  const auto module = load(context, model);
  Sharding sharding;
  sharding.modules = {"first", "second"};
  const auto sharded = shard(context, module, sharding);
  auto graph = module.get_method("forward").graph()->copy();
  usual_passes(graph);
  std::string order;
  for (const jit::Node* node : graph->block()->nodes()) {
    const std::string kind = node->kind().toQualString();
    if (kind.find("fsdp2_plugin") == 0) order += kind.find("pre") != std::string::npos ? "(" : ")";
    if (kind == "aten::linear" || kind == "aten::addmm") order += "L";
    if (kind == "aten::tanh") order += "t";
  }
  EXPECT_EQ(order, "((L)t(L))");
}

/// A host's own module around the sharded one: LibTorch's executors inline and optimise its graph with all it calls.
jit::Module parent_of(const jit::Module& module) {
  jit::Module parent("Parent");
  parent.register_module("inner", module);
  parent.define("def forward(self, x):\n  return self.inner.forward(x)\n");
  return parent;
}

void six_steps(RankContext& context, const std::string& model, const Sharding& sharding) {
  const auto module = load(context, model);
  const auto sharded = shard(context, module, sharding);
  auto parent = parent_of(module);
  torch::optim::SGD optimizer(tensors_of(*sharded), torch::optim::SGDOptions(0.05));
  const auto wanted = kLosses.find({context.world(), context.rank()});
  for (int64_t step = 0; step < 6; ++step) {
    const at::Tensor x = fill({2, 4}, 5 + step) + static_cast<double>(context.rank());
    optimizer.zero_grad();
    const at::Tensor loss = (parent.forward({x}).toTensor() - 1).pow(2).mean();
    if (wanted != kLosses.end()) {
      EXPECT_NEAR(loss.item<double>(), wanted->second[static_cast<size_t>(step)], 2e-5) << "step " << step;
    }
    loss.backward();
    optimizer.step();
  }
  sharded->detach();
  if (context.world() != 2) return;
  size_t p = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    EXPECT_NEAR(parameter.sum().item<double>(), kSumsOfTwo[p++], 2e-5);
  }
  EXPECT_EQ(p, 4U);
}

/// The executors: profiling, the older one, and none.
void every_executor(RankContext& context, const std::string& model) {
  const bool executor = jit::getExecutorMode();
  const bool profiling = jit::getProfilingMode();
  for (const bool reshard_root : {false, true}) {
    Sharding sharding;
    sharding.classes = {"Linear"};
    if (reshard_root) sharding.reshard = true;
    six_steps(context, model, sharding);
    jit::getExecutorMode() = true;
    jit::getProfilingMode() = false;
    six_steps(context, model, sharding);
    jit::getExecutorMode() = false;
    six_steps(context, model, sharding);
    jit::getExecutorMode() = executor;
    jit::getProfilingMode() = profiling;
    const torch::jit::GraphOptimizerEnabledGuard off(false);
    six_steps(context, model, sharding);
  }
}

RANK_CASE(GraphPasses, counts_scripted) {
  count_operators(context, "net3");
}
RANK_CASE(GraphPasses, counts_traced) {
  count_operators(context, "net3_traced");
}
RANK_CASE(GraphPasses, order_scripted) {
  order_of_operators(context, "net3");
}
RANK_CASE(GraphPasses, order_traced) {
  order_of_operators(context, "net3_traced");
}
RANK_CASE(GraphPasses, every_executor_scripted) {
  every_executor(context, "net3");
}
RANK_CASE(GraphPasses, every_executor_traced) {
  every_executor(context, "net3_traced");
}

}  // namespace
}  // namespace fsdp2::testing
