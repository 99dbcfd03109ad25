// Twenty steps of each language model, sharded and unsharded, on the same global batches.
#include <gtest/gtest.h>

#include <map>

#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

Recipe recipe_for(Optimizer optimizer) {
  Recipe recipe;
  recipe.loss = next_token_loss;
  recipe.optimizer = optimizer;
  // AdamW makes full steps of what rounding leaves where a gradient is almost zero: small ones keep it below the
  // tolerance.
  recipe.rate = optimizer == Optimizer::kAdamW ? 2e-4 : 0.05;
  recipe.steps = 20;
  return recipe;
}

/// The strategies share one unsharded run.
const Reference& reference_for(RankContext& context, const LanguageModel& model, Optimizer optimizer) {
  static std::map<std::string, Reference> references;
  const std::string key = model.file + (optimizer == Optimizer::kAdamW ? " adamw" : " sgd");
  auto found = references.find(key);
  if (found == references.end()) {
    found = references.emplace(key, train_unsharded(load(context, model.file), recipe_for(optimizer), context.world()))
                .first;
  }
  return found->second;
}

const TensorsByName& noise_of(RankContext& context, const LanguageModel& model) {
  static std::map<std::string, TensorsByName> noise;
  auto found = noise.find(model.file);
  if (found == noise.end()) {
    found = noise.emplace(model.file, elements_of_noise(context, model.file, recipe_for(Optimizer::kSgd))).first;
  }
  return found->second;
}

void train_twenty_steps(RankContext& context, const LanguageModel& model, const Sharding& sharding,
                        Optimizer optimizer) {
  const Recipe recipe = recipe_for(optimizer);
  const Reference& reference = reference_for(context, model, optimizer);
  double moved = 0;
  for (const auto& [name, tensor] : named_parameters(load(context, model.file))) {
    moved = std::max(moved, (tensor - reference.parameters.at(name)).abs().max().item<double>());
  }
  ASSERT_GT(moved, 1e-3) << "the recipe does not train at all";
  Tolerance tolerance;
  tolerance.noise = noise_of(context, model);
  int64_t noisy = 0;
  int64_t elements = 0;
  for (const auto& [name, mask] : tolerance.noise) noisy += mask.sum().item<int64_t>();
  for (const auto& [name, tensor] : reference.parameters) elements += tensor.numel();
  ASSERT_LT(noisy * 100, elements) << "too much is left out";

  const auto module = load(context, model.file);
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, sharding, communicator);
  EXPECT_EQ(sharded->statistics().units, model.blocks + 1);
  communicator->forget();
  const auto steps = make_optimizer(optimizer, tensors_of(*sharded), recipe.rate);
  torch::jit::Module runs = module;
  for (int64_t step = 0; step < recipe.steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    steps->zero_grad();
    const at::Tensor loss = next_token_loss(runs, step, context.rank());
    EXPECT_NEAR(loss.item<double>(), reference.losses[static_cast<size_t>(step)][static_cast<size_t>(context.rank())],
                2e-5);
    loss.backward();
    if (step == 0) expect_gradients_equal(*sharded, reference.gradients[0], tolerance);
    steps->step();
  }
  // Work was really shared out: each unit communicated in each step.
  const int64_t units_x_steps = (model.blocks + 1) * recipe.steps;
  if (sharding.strategy == "no_shard") {
    EXPECT_EQ(communicator->count(Collective::kAllReduce), units_x_steps);
  } else {
    EXPECT_GE(communicator->count(Collective::kAllGather), units_x_steps);
    EXPECT_EQ(communicator->count(Collective::kReduceScatter), units_x_steps);
  }
  sharded->detach();
  if (optimizer != Optimizer::kAdamW) tolerance.noise.clear();
  expect_parameters_equal(module, reference.parameters, tolerance);
}

const bool added = [] {
  for (const LanguageModel& model : language_models()) {
    // Four ranks cut otherwise than two, which any model shows: one of each kind is enough.
    const bool on_four = model.file == "lm" || model.file == "hf_llama_tied";
    const std::vector<int64_t> worlds = on_four ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{2};
    for (const std::string strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
      add_case(
          __FILE__, __LINE__, "ParityLosses", model.file + "_" + strategy + "_sgd",
          [model, strategy](RankContext& context) {
            train_twenty_steps(context, model, by_layer(model, strategy), Optimizer::kMomentum);
          },
          worlds, 180);
    }
    // The optimizer sees nothing of the strategy nor of the other ranks: one case is enough.
    add_case(
        __FILE__, __LINE__, "ParityLosses", model.file + "_full_shard_adamw",
        [model](RankContext& context) { train_twenty_steps(context, model, by_layer(model), Optimizer::kAdamW); }, {2},
        180);
  }
  // Its vocabulary of 257 divides by no number of ranks.
  for (const LanguageModel& model : {LanguageModel{"lm", "Block"}, LanguageModel{"hf_gpt2_tied", "GPT2Block"}}) {
    add_case(
        __FILE__, __LINE__, "ParityLosses", model.file + "_per_parameter_sgd",
        [model](RankContext& context) {
          Sharding sharding = by_layer(model);
          sharding.layout = Layout::kPerParameter;
          train_twenty_steps(context, model, sharding, Optimizer::kMomentum);
        },
        {2, 4}, 180);
  }
  return true;
}();

}  // namespace
}  // namespace fsdp2::testing
