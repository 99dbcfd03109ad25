// Modes of a module and of autograd; modules with a past; other modules of the same classes.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

void expect_same_output(torch::jit::Module& module, torch::jit::Module& plain, int64_t rank) {
  for (int64_t step = 0; step < 3; ++step) {
    const at::Tensor own = module.forward({input_ids(step, rank)}).toTensor();
    const at::Tensor wanted = plain.forward({input_ids(step, rank)}).toTensor();
    EXPECT_LE((own - wanted).abs().max().item<double>(), 2e-5);
  }
}

/// Between training steps, the model is used without gradients in every way there is.
void forwards_without_gradients(RankContext& context, const std::string& file, const std::string& layer,
                                const std::string& strategy) {
  SCOPED_TRACE(strategy);
  const LanguageModel model{file, layer};
  auto plain = load(context, model.file);
  auto module = load(context, model.file);
  const auto sharded = shard(context, module, by_layer(model, strategy));
  const auto optimizer = make_optimizer(Optimizer::kSgd, tensors_of(*sharded), 0.05);
  std::vector<at::Tensor> parameters;
  std::set<void*> seen;
  for (const auto& parameter : plain.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
  }
  const auto plain_optimizer = make_optimizer(Optimizer::kSgd, parameters, 0.05);
  for (int64_t step = 0; step < 3; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    {
      const at::NoGradGuard guard;
      expect_same_output(module, plain, context.rank());
    }
    {
      const c10::InferenceMode guard;
      expect_same_output(module, plain, context.rank());
    }
    module.eval();
    plain.eval();
    expect_same_output(module, plain, context.rank());  // with gradients, and no backward
    {
      const c10::InferenceMode guard;
      expect_same_output(module, plain, context.rank());
    }
    module.train();
    plain.train();
    plain_optimizer->zero_grad();
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (next_token_loss(plain, step, rank) / static_cast<double>(context.world())).backward();
    }
    plain_optimizer->step();
    optimizer->zero_grad();
    next_token_loss(module, step, context.rank()).backward();
    optimizer->step();
  }
  sharded->detach();
  expect_same_output(module, plain, context.rank());
}

RANK_CASE(ModuleStates, no_grad_and_inference_and_eval) {
  for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
    forwards_without_gradients(context, "lm_tied", "Block", strategy);
  }
}
RANK_CASE(ModuleStates, no_grad_and_inference_and_eval_transformers) {
  forwards_without_gradients(context, "hf_gpt2_tied", "GPT2Block", "full_shard");
}

/// The very first use is under inference mode.
RANK_CASE(ModuleStates, inference_first_then_training) {
  auto module = load(context, "ThreeLayers");
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  const auto sharded = shard(context, module, units_of({"Layer"}));
  {
    const c10::InferenceMode guard;
    module.forward({odd_input(0, context.rank())});
  }
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  expect_gradients_equal(*sharded, reference.gradients[0]);
}

/// Executors have compiled and specialised before the wrap.
void run_before(RankContext& context, const std::string& model, const std::vector<std::string>& classes,
                const Recipe& recipe) {
  const Reference reference = train_unsharded(load(context, model), recipe, context.world());
  auto module = load(context, model);
  for (int64_t round = 0; round < 4; ++round) {
    recipe.loss(module, round, context.rank()).backward();
    const at::NoGradGuard guard;
    recipe.loss(module, round, context.rank());
  }
  for (const at::Tensor& parameter : module.parameters()) parameter.mutable_grad() = at::Tensor();
  expect_trains_like(context, module, units_of(classes), recipe, reference);
}

RANK_CASE(ModuleStates, ran_before_the_wrap) {
  run_before(context, "ThreeLayers", {"Layer"}, odd_recipe());
  run_before(context, "ThreeLayers_traced", {"Layer"}, odd_recipe());
}
RANK_CASE(ModuleStates, ran_before_the_wrap_with_attention) {
  run_before(context, "AttentionModel", {"AttentionUnit"}, odd_recipe());
}
RANK_CASE(ModuleStates, ran_before_the_wrap_language_models) {
  Recipe recipe = odd_recipe();
  recipe.loss = next_token_loss;
  run_before(context, "lm_tied", {"Block"}, recipe);
  run_before(context, "hf_llama", {"LlamaDecoderLayer"}, recipe);
}

/// Sharded, detached, sharded again in another way, in one process.
RANK_CASE(ModuleStates, sharded_again_after_detach) {
  const Recipe recipe = odd_recipe();
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), recipe, context.world());
  auto module = load(context, "ThreeLayers");
  for (const auto& classes : std::vector<std::vector<std::string>>{{"Layer"}, {"Linear"}, {}}) {
    const auto sharded = shard(context, module, units_of(classes));
    mean_square(module.forward({odd_input(0, context.rank())})).backward();
    expect_gradients_equal(*sharded, reference.gradients[0]);
    sharded->detach();
    for (const at::Tensor& parameter : module.parameters()) {
      EXPECT_FALSE(parameter.grad().defined()) << "detach gives plain parameters without gradients";
    }
  }
  expect_trains_like(context, module, units_of({"Layer"}), recipe, reference);
}

/// A copy with leaf parameters. (With gradients on, deepcopy gives parameters whose graph leads to the originals.)
torch::jit::Module copy_of(const torch::jit::Module& module) {
  const at::NoGradGuard guard;
  torch::jit::Module copy = module.deepcopy();
  for (const at::Tensor& parameter : copy.parameters()) parameter.requires_grad_(true);
  return copy;
}

/// Copies and other instances of the same classes, made before and after the wrap, run as if nothing had happened.
RANK_CASE(ModuleStates, copies_and_other_instances) {
  const at::Tensor x = odd_input(0, context.rank());
  auto module = load(context, "ThreeLayers");
  auto twin = copy_of(module);
  auto other = load(context, "ThreeLayers");
  other.forward({x});
  const at::Tensor wanted = twin.forward({x}).toTensor().detach();
  const Recipe recipe = odd_recipe();
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), recipe, context.world());
  auto communicator = context.new_communicator();
  auto sharded = shard(context, module, units_of({"Layer"}), communicator);
  const auto check_bystanders = [&] {
    communicator->forget();
    for (torch::jit::Module* bystander : {&twin, &other}) {
      for (int round = 0; round < 3; ++round) {
        const at::Tensor y = bystander->forward({x}).toTensor();
        EXPECT_TRUE(y.equal(wanted));
        mean_square(y).backward();
      }
      for (const at::Tensor& parameter : bystander->parameters()) EXPECT_TRUE(parameter.grad().defined());
    }
    EXPECT_EQ(communicator->records().size(), 0U);
  };
  check_bystanders();
  mean_square(module.forward({x})).backward();
  expect_gradients_equal(*sharded, reference.gradients[0]);
  check_bystanders();
  sharded->detach();
  check_bystanders();
  sharded.reset();
  check_bystanders();
  expect_trains_like(context, other, units_of({"Layer"}), recipe, reference);
}

/// One of two layers of a class is a unit, the other is not.
RANK_CASE(ModuleStates, one_of_two_instances_is_a_unit) {
  const Recipe recipe = odd_recipe();
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), recipe, context.world());
  Sharding sharding;
  sharding.modules = {"b"};
  for (const Sharding& each : every_strategy(sharding)) {
    expect_trains_like(context, load(context, "ThreeLayers"), each, recipe, reference);
  }
}

/// Two engines over two modules of the same classes at once; one is detached while the other trains on.
RANK_CASE(ModuleStates, two_engines) {
  const Recipe recipe = odd_recipe(6);
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), recipe, context.world());
  auto one = load(context, "ThreeLayers");
  auto two = load(context, "ThreeLayers");
  auto engine_one = shard(context, one, units_of({"Layer"}));
  auto engine_two = shard(context, two, units_of({"Linear"}));
  const auto optimizer_one = make_optimizer(recipe.optimizer, tensors_of(*engine_one), recipe.rate);
  const auto optimizer_two = make_optimizer(recipe.optimizer, tensors_of(*engine_two), recipe.rate);
  for (int64_t step = 0; step < 6; ++step) {
    const auto wanted = reference.losses[static_cast<size_t>(step)][static_cast<size_t>(context.rank())];
    if (step < 3) {
      optimizer_one->zero_grad();
      const at::Tensor loss = recipe.loss(one, step, context.rank());
      EXPECT_NEAR(loss.item<double>(), wanted, 2e-5);
      loss.backward();
      optimizer_one->step();
    } else if (step == 3) {
      engine_one->detach();
      engine_one.reset();
    }
    optimizer_two->zero_grad();
    const at::Tensor loss = recipe.loss(two, step, context.rank());
    EXPECT_NEAR(loss.item<double>(), wanted, 2e-5) << "step " << step;
    loss.backward();
    optimizer_two->step();
  }
  engine_two->detach();
  expect_parameters_equal(two, reference.parameters, {});
}

/// Two engines over two copies that share their classes, on one communicator; either may be detached first.
RANK_CASE(ModuleStates, two_engines_over_copies) {
  const at::Tensor x = odd_input(0, context.rank());
  for (const bool first_made_first : {true, false}) {
    auto one = load(context, "ThreeLayers");
    auto two = copy_of(one);
    const at::Tensor wanted = two.forward({x}).toTensor().detach();
    const auto communicator = context.new_communicator();
    const auto engine_one = shard(context, one, units_of({"Layer"}), communicator);
    const auto engine_two = shard(context, two, units_of({"Linear"}), communicator);
    const auto check = [&] {
      for (torch::jit::Module* module : {&one, &two}) {
        const at::Tensor y = module->forward({x}).toTensor();
        EXPECT_LE((y - wanted).abs().max().item<double>(), 1e-6);
        mean_square(y).backward();
      }
    };
    check();
    (first_made_first ? engine_one : engine_two)->detach();
    check();
    (first_made_first ? engine_two : engine_one)->detach();
    check();
  }
}

/// One loss over two sharded modules: one backward for two engines.
RANK_CASE(ModuleStates, two_engines_in_one_backward) {
  auto one = load(context, "ThreeLayers");
  auto two = load(context, "SideBySide");
  const auto loss_of = [](torch::jit::Module& a, torch::jit::Module& b, int64_t rank) {
    return mean_square(b.forward({a.forward({odd_input(0, rank)})}));
  };
  auto plain_one = load(context, "ThreeLayers");
  auto plain_two = load(context, "SideBySide");
  for (int64_t rank = 0; rank < context.world(); ++rank) {
    (loss_of(plain_one, plain_two, rank) / static_cast<double>(context.world())).backward();
  }
  const auto engine_one = shard(context, one, units_of({"Layer"}));
  const auto engine_two = shard(context, two, units_of({"Layer"}));
  loss_of(one, two, context.rank()).backward();
  const auto gradients = [](const torch::jit::Module& module) {
    TensorsByName result;
    for (const auto& [name, tensor] : named_parameters(module)) result[name] = tensor.grad();
    return result;
  };
  expect_gradients_equal(*engine_one, gradients(plain_one));
  expect_gradients_equal(*engine_two, gradients(plain_two));
}

/// A module is sharded once.
RANK_CASE(Behaviour_A26, sharded_twice_is_refused) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  EXPECT_ANY_THROW(shard(context, module, units_of({"Layer"})));
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  sharded->detach();
  EXPECT_ANY_THROW(sharded->detach());
}

}  // namespace
}  // namespace fsdp2::testing
