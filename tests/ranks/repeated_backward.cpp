// Backward more than once over one graph, and with a graph of its own.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

std::vector<at::Tensor> gradients_of(const ShardedModule& sharded) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors_of(sharded)) {
    result.push_back(tensor.grad().defined() ? tensor.grad().detach().clone() : at::Tensor());
  }
  return result;
}

void kept_graph(RankContext& context, const std::string& model, const Sharding& sharding, const Loss& loss_of) {
  SCOPED_TRACE(model + " " + sharding.strategy);
  auto module = load(context, model);
  const auto sharded = shard(context, module, sharding);
  for (int round = 0; round < 3; ++round) {
    for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
    const at::Tensor loss = loss_of(module, 0, context.rank());
    loss.backward({}, /*retain_graph=*/true);
    const auto once = gradients_of(*sharded);
    loss.backward({}, /*retain_graph=*/true);
    const auto twice = gradients_of(*sharded);
    loss.backward();
    const auto thrice = gradients_of(*sharded);
    int64_t defined = 0;
    for (size_t i = 0; i < once.size(); ++i) {
      if (!once[i].defined()) continue;
      ++defined;
      EXPECT_TRUE(twice[i].equal(once[i] * 2)) << "not exactly doubled";
      EXPECT_TRUE(thrice[i].equal(once[i] * 2 + once[i])) << "not exactly added a third time";
    }
    EXPECT_GT(defined, 0);
  }
}

RANK_CASE(RepeatedBackward, kept_graph) {
  for (const Sharding& sharding : every_strategy(units_of({"Layer"}))) {
    for (const char* model : {"ThreeLayers", "Chain", "SideBySide", "ThreeLayers_traced", "Frozen"}) {
      kept_graph(context, model, sharding, odd_recipe().loss);
    }
  }
  for (const Sharding& sharding : every_strategy(units_of({"Outer", "Layer"}))) {
    kept_graph(context, "Nested", sharding, odd_recipe().loss);
  }
}

RANK_CASE(RepeatedBackward, kept_graph_of_language_models) {
  kept_graph(context, "lm_tied", by_layer({"lm_tied", "Block"}), next_token_loss);
  kept_graph(context, "hf_llama", by_layer({"hf_llama", "LlamaDecoderLayer"}), next_token_loss);
}

/// Two losses over one forward.
RANK_CASE(RepeatedBackward, two_losses_over_one_forward) {
  auto plain = load(context, "TwoOutputs");
  const auto losses = [](torch::jit::Module& module, int64_t rank) {
    const auto outputs = module.forward({odd_input(0, rank)}).toTuple()->elements().vec();
    return std::pair{mean_square(outputs[0]), mean_square(outputs[1]) + mean_square(outputs[0]) * 0.5};
  };
  for (int64_t rank = 0; rank < context.world(); ++rank) {
    const auto [first, second] = losses(plain, rank);
    ((first + second) / static_cast<double>(context.world())).backward();
  }
  TensorsByName wanted;
  for (const auto& [name, tensor] : named_parameters(plain)) wanted[name] = tensor.grad();
  for (const Sharding& sharding : every_strategy(units_of({"Layer"}))) {
    auto module = load(context, "TwoOutputs");
    const auto sharded = shard(context, module, sharding);
    const auto [first, second] = losses(module, context.rank());
    first.backward({}, /*retain_graph=*/true);
    second.backward();
    expect_gradients_equal(*sharded, wanted);
  }
}

/// The gradient of a gradient: right, or an error that names the unit.
void gradient_penalty(RankContext& context, const Sharding& sharding) {
  const auto loss_of = [](torch::jit::Module& module, int64_t rank) {
    const at::Tensor x = odd_input(0, rank).requires_grad_(true);
    const at::Tensor y = mean_square(module.forward({x}));
    const at::Tensor slope = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return y + slope.pow(2).sum();
  };
  auto plain = load(context, "ThreeLayers");
  for (int64_t rank = 0; rank < context.world(); ++rank) {
    (loss_of(plain, rank) / static_cast<double>(context.world())).backward();
  }
  TensorsByName wanted;
  for (const auto& [name, tensor] : named_parameters(plain)) wanted[name] = tensor.grad();
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, sharding);
  bool refused = false;
  try {
    const at::Tensor loss = loss_of(module, context.rank());
    loss.backward();
  } catch (const std::exception& error) {
    refused = true;
    const std::string text = error.what();
    // The last unit's backward comes first.
    EXPECT_TRUE(text.find(sharding.classes.empty() ? "root" : "`c`") != std::string::npos) << text;
    EXPECT_TRUE(text.find("create_graph") != std::string::npos) << text;
  }
  if (!refused) {
    expect_gradients_equal(*sharded, wanted);
    return;
  }
  // The engine is as good as before.
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  expect_gradients_equal(*sharded, reference.gradients[0]);
}

RANK_CASE(RepeatedBackward, create_graph) {
  for (const Sharding& sharding : every_strategy(units_of({"Layer"}))) {
    SCOPED_TRACE(sharding.strategy);
    gradient_penalty(context, sharding);
  }
  gradient_penalty(context, {});
}

/// Gradients of inputs alone: `autograd::grad` towards the input, no parameter gradient is left behind.
RANK_CASE(RepeatedBackward, gradients_of_an_input) {
  auto plain = load(context, "ThreeLayers");
  auto module = load(context, "ThreeLayers");
  const at::Tensor x = odd_input(0, context.rank()).requires_grad_(true);
  const at::Tensor wanted = torch::autograd::grad({mean_square(plain.forward({x}))}, {x})[0];
  const auto sharded = shard(context, module, units_of({"Layer"}));
  const at::Tensor own = torch::autograd::grad({mean_square(module.forward({x}))}, {x})[0];
  EXPECT_LE((own - wanted).abs().max().item<double>(), 1e-6);
  mean_square(module.forward({x})).backward();
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  expect_gradients_equal(*sharded, reference.gradients[0]);
}

/// Graphs that are never used for a backward, and engines that end before their graphs.
RANK_CASE(RepeatedBackward, graphs_left_over) {
  auto module = load(context, "ThreeLayers");
  auto sharded = shard(context, module, units_of({"Layer"}));
  std::vector<at::Tensor> losses;
  for (int64_t step = 0; step < 3; ++step)
    losses.push_back(mean_square(module.forward({odd_input(step, context.rank())})));
  losses[1].backward();
  losses[0] = at::Tensor();
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(2), context.world());
  sharded->detach();
  sharded.reset();
  try {
    losses[2].backward();  // right or refused, but no crash
  } catch (const std::exception& error) {
    EXPECT_GT(std::string(error.what()).size(), 10U);
  }
  expect_trains_like(context, module, units_of({"Layer"}), odd_recipe(2), reference);
}

}  // namespace
}  // namespace fsdp2::testing
