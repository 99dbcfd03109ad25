// `gradient.clip_norm`: the host's call clips as the configuration says, and a host without the call is warned.
#include <gtest/gtest.h>

#include <functional>

#include "registry/error.hpp"
#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm_tied", "Block"};

Recipe recipe_with(std::optional<double> clip_norm) {
  Recipe recipe{next_token_loss};
  recipe.clip_norm = clip_norm;
  return recipe;
}

/// Norms of the first steps are far above the first limit and far below the second.
RANK_CASE_ON(ConfiguredClipping, trains_as_clip_grad_norm_does, 1, 2, 4) {
  for (const double limit : {0.01, 1e3}) {
    const Reference reference = train_unsharded(load(context, kModel.file), recipe_with(limit), context.world());
    EXPECT_EQ(reference.norms.front() > limit, limit < 1) << reference.norms.front();
    for (const char* strategy : {"full_shard", "no_shard"}) {
      SCOPED_TRACE(std::string(strategy) + ", limit " + std::to_string(limit));
      expect_trains_like(context, load(context, kModel.file), by_layer(kModel, strategy), recipe_with(limit),
                         reference);
    }
  }
}

RANK_CASE_ON(ConfiguredClipping, without_the_key_nothing_happens, 1, 2) {
  auto communicator = context.new_communicator();
  auto module = load(context, kModel.file);
  const auto engine = shard(context, module, by_layer(kModel), communicator);
  next_token_loss(module, 0, context.rank()).backward();
  TensorsByName before;
  for (const auto& [name, shard] : engine->parameters()) before[name] = shard.grad().clone();
  communicator->forget();
  EXPECT_EQ(engine->clip_gradients(), std::nullopt);
  EXPECT_TRUE(communicator->records().empty());
  for (const auto& [name, shard] : engine->parameters()) EXPECT_TRUE(at::equal(shard.grad(), before.at(name))) << name;
  engine->begin_local_use();
  EXPECT_THROW(engine->clip_gradients(), Error) << "a wrong moment is one with and without the key";
}

// ---- the warning
// ------------------------------------------------------------------------------------------------------

struct Run {
  std::vector<LogLine> log = {};  // outlives the engine
  torch::jit::Module module;
  std::unique_ptr<ShardedModule> engine;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

using BeforeStep = std::function<void(ShardedModule&)>;

/// Three steps of two micro-batches.
void train(RankContext& context, Run& run, std::optional<double> clip_norm, Optimizer optimizer,
           const BeforeStep& before_step) {
  run.module = load(context, kModel.file);
  Sharding sharding = by_layer(kModel);
  sharding.clip_norm = clip_norm;
  run.engine = shard(context, run.module, sharding, nullptr, &run.log);
  run.optimizer = make_optimizer(optimizer, tensors_of(*run.engine), 0.01);
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t micro = 0; micro < 2; ++micro)
      next_token_loss(run.module, 2 * step + micro, context.rank()).backward();
    if (before_step) before_step(*run.engine);
    EXPECT_TRUE(step > 0 || run.log.empty()) << "no step yet: " << run.log.front().text;
    run.optimizer->step();
    run.optimizer->zero_grad();
  }
}

RANK_CASE_ON(ConfiguredClipping, a_host_that_never_clips_is_warned_once, 1, 2, 4) {
  // SGD writes behind version counters.
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdamW}) {
    Run run;
    train(context, run, 0.25, optimizer, [](ShardedModule& engine) { EXPECT_FALSE(engine.unscale_gradients(2)); });
    ASSERT_EQ(run.log.size(), 1U);
    EXPECT_TRUE(run.log[0].warning);
    EXPECT_NE(run.log[0].text.find("`gradient.clip_norm = 0.25` takes effect by `engine.clip_gradients()`"),
              std::string::npos)
        << run.log[0].text;
  }
}

RANK_CASE_ON(ConfiguredClipping, a_host_that_clips_is_not_warned, 1, 2) {
  const std::vector<std::pair<std::optional<double>, BeforeStep>> hosts{
      {0.25, [](ShardedModule& engine) { engine.clip_gradients(); }},
      {0.25, [](ShardedModule& engine) { engine.clip_gradient_norm(1, 1); }},
      {std::nullopt, nullptr},
  };
  for (const auto& [clip_norm, before_step] : hosts) {
    Run run;
    train(context, run, clip_norm, Optimizer::kAdamW, before_step);
    EXPECT_TRUE(run.log.empty()) << run.log.front().text;
  }
}

/// Weights that are read or written between passes are no step.
RANK_CASE_ON(ConfiguredClipping, what_the_engine_writes_is_no_step, 1, 2) {
  std::vector<LogLine> log;
  auto module = load(context, kModel.file);
  Sharding sharding = by_layer(kModel);
  sharding.clip_norm = 1;
  const auto engine = shard(context, module, sharding, nullptr, &log);
  engine->load_from(context.model_path(kModel.file));
  for (const at::Tensor& shard : tensors_of(*engine)) shard.detach().mul_(0.5);  // no pass has been
  next_token_loss(module, 0, context.rank()).backward();
  engine->load_from(context.model_path(kModel.file));
  next_token_loss(module, 1, context.rank()).backward();
  engine->begin_local_use();
  for (auto& [name, tensor] : named_parameters(module)) tensor.mul_(2);
  engine->end_local_use(/*write_back=*/true);
  next_token_loss(module, 2, context.rank());
  EXPECT_TRUE(log.empty()) << log.front().text;
}

}  // namespace
}  // namespace fsdp2::testing
