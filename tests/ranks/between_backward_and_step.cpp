// What a host does between backward and the optimizer's step: norms, clipping, unscaling, whole tensors from shards;
// and the check that finds a host that changes gradients by itself.
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>

#include "registry/error.hpp"
#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm_tied", "Block"};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The unsharded model after one backward over all ranks' batches.
torch::jit::Module after_backward(const RankContext& context) {
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  auto module = load(context, kModel.file);
  for (int64_t rank = 0; rank < context.world(); ++rank) {
    (next_token_loss(module, 0, rank) / static_cast<double>(context.world())).backward();
  }
  return module;
}

std::vector<at::Tensor> distinct(const torch::jit::Module& module) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : module.parameters()) {
    const bool known =
        std::any_of(result.begin(), result.end(), [&](const at::Tensor& other) { return other.is_same(tensor); });
    if (!known) result.push_back(tensor);
  }
  return result;
}

TensorsByName gradients_of(const torch::jit::Module& module) {
  TensorsByName result;
  for (const auto& parameter : module.named_parameters()) result[parameter.name] = parameter.value.grad();
  return result;
}

struct Sharded {
  torch::jit::Module module;
  std::unique_ptr<ShardedModule> engine;
};

Sharded sharded_after_backward(RankContext& context, const std::string& strategy, int64_t check_steps = 0) {
  Sharding sharding = by_layer(kModel, strategy);
  sharding.check_steps = check_steps;
  Sharded result{load(context, kModel.file), nullptr};
  result.engine = shard(context, result.module, sharding);
  next_token_loss(result.module, 0, context.rank()).backward();
  return result;
}

RANK_CASE_ON(Behaviour_I7, norms_are_those_of_the_whole, 1, 2, 4) {
  const auto plain = after_backward(context);
  for (const char* strategy : {"full_shard", "no_shard"}) {
    const Sharded sharded = sharded_after_backward(context, strategy);
    for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
      // Without clipping: a norm alone.
      const double wanted = torch::nn::utils::clip_grad_norm_(distinct(plain), 1e9, p);
      const double norm = sharded.engine->gradient_norm(p);
      EXPECT_NEAR(norm, wanted, 1e-5 * wanted) << strategy << ", p " << p;
      EXPECT_EQ(context.sum(norm), norm * static_cast<double>(context.world())) << "ranks differ";
    }
    EXPECT_THROW(sharded.engine->gradient_norm(0), Error);
    EXPECT_THROW(sharded.engine->gradient_norm(std::nan("")), Error);
  }
}

RANK_CASE(Behaviour_I9, clipping_is_that_of_the_whole) {
  for (const double p : {2.0, kInfinity}) {
    const auto plain = after_backward(context);
    const double wanted = torch::nn::utils::clip_grad_norm_(distinct(plain), 0.01, p);
    const Sharded sharded = sharded_after_backward(context, "full_shard");
    EXPECT_NEAR(sharded.engine->clip_gradient_norm(0.01, p), wanted, 1e-5 * wanted);
    expect_gradients_equal(*sharded.engine, gradients_of(plain));
    EXPECT_NEAR(sharded.engine->gradient_norm(p), 0.01, 1e-5);
  }
  const auto plain = after_backward(context);
  torch::nn::utils::clip_grad_value_(distinct(plain), 1e-3);
  const Sharded sharded = sharded_after_backward(context, "full_shard");
  sharded.engine->clip_gradient_value(1e-3);
  expect_gradients_equal(*sharded.engine, gradients_of(plain));
  sharded.engine->zero_gradients();
  for (const at::Tensor& shard : tensors_of(*sharded.engine)) EXPECT_FALSE(shard.grad().defined());
}

/// One number of each rank; parameters without a gradient, and gradients of zero, stay as they are.
RANK_CASE(Behaviour_I8, clipping_exchanges_one_number) {
  const auto loss_of = [](torch::jit::Module& module, int64_t rank) {
    return mean_square(module.forward({odd_input(0, rank), int64_t{1}}));
  };
  auto plain = load(context, "Chosen");
  for (int64_t rank = 0; rank < context.world(); ++rank) {
    (loss_of(plain, rank) / static_cast<double>(context.world())).backward();
  }
  auto module = load(context, "Chosen");
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, units_of({"Layer"}), communicator);
  loss_of(module, context.rank()).backward();
  communicator->forget();
  const double wanted = torch::nn::utils::clip_grad_norm_(distinct(plain), 0.01, 2);
  EXPECT_NEAR(sharded->clip_gradient_norm(0.01, 2), wanted, 1e-5 * wanted);
  ASSERT_EQ(communicator->records().size(), 1U);
  EXPECT_EQ(communicator->records().front().bytes, 8 * context.world());
  expect_gradients_equal(*sharded, gradients_of(plain));  // I10: two of its units have none
  for (const at::Tensor& shard : tensors_of(*sharded)) {
    if (shard.grad().defined()) shard.mutable_grad().zero_();
  }
  EXPECT_EQ(sharded->clip_gradient_norm(0.01, 2), 0);
  for (const at::Tensor& shard : tensors_of(*sharded)) {
    EXPECT_TRUE(!shard.grad().defined() || at::equal(shard.grad(), at::zeros_like(shard)));
  }
}

RANK_CASE(Behaviour_I13, unscaling_finds_infinity_of_any_rank) {
  const auto plain = after_backward(context);
  const Sharded sharded = sharded_after_backward(context, "full_shard");
  for (const at::Tensor& shard : tensors_of(*sharded.engine)) shard.mutable_grad().mul_(1024);
  EXPECT_FALSE(sharded.engine->unscale_gradients(1024));
  expect_gradients_equal(*sharded.engine, gradients_of(plain));
  for (const at::Tensor& shard : tensors_of(*sharded.engine)) {
    if (context.rank() != context.world() - 1 || shard.numel() == 0) continue;
    shard.mutable_grad().view(-1)[0] = kInfinity;
    break;
  }
  EXPECT_TRUE(sharded.engine->unscale_gradients(2));
  EXPECT_THROW(sharded.engine->unscale_gradients(0), Error);
}

RANK_CASE_ON(Behaviour_I4, whole_tensors_from_shards, 1, 2, 4) {
  const auto plain = after_backward(context);
  const TensorsByName parameters = named_parameters(plain);
  const TensorsByName gradients = gradients_of(plain);
  for (const char* strategy : {"full_shard", "no_shard"}) {
    SCOPED_TRACE(strategy);
    const Sharded sharded = sharded_after_backward(context, strategy);
    int64_t elements = 0;
    for (const ShardGeometry& part : sharded.engine->geometry()) {
      SCOPED_TRACE(part.name);
      const at::Tensor& whole = parameters.at(part.name);
      EXPECT_EQ(whole.sizes().vec(), part.shape);
      EXPECT_TRUE(
          at::equal(part.shard.detach().view(-1), whole.detach().view(-1).slice(0, part.range.begin, part.range.end)));
      EXPECT_TRUE(at::equal(sharded.engine->gather_tensor(part.name, part.shard, -1), whole));
      const int64_t last = context.world() - 1;
      const at::Tensor gradient = sharded.engine->gather_tensor(part.name, part.shard.grad(), last);
      if (context.rank() != last) {
        EXPECT_FALSE(gradient.defined());
      } else {
        EXPECT_TRUE(at::allclose(gradient, gradients.at(part.name), 1e-4, 1e-7));
      }
      elements += part.shard.numel();
    }
    EXPECT_GT(elements, 0);
    const std::string known = sharded.engine->geometry().front().name;
    try {
      sharded.engine->gather_tensor(known + "s", at::zeros({1}), -1);
      ADD_FAILURE() << "an unknown name was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
      EXPECT_EQ(error.details().nearest, known) << error.what();
    }
  }
}

// ---- the check
// --------------------------------------------------------------------------------------------------------

/// The mistake: the mean over ranks, written behind autograd's back as an MPI host would.
void average_by_the_host(RankContext& context, const ShardedModule& engine) {
  for (const at::Tensor& shard : tensors_of(engine)) {
    const at::Tensor gradient = shard.grad().view(-1);
    std::vector<double> values(64);  // of each the first elements: the number must be the same on all ranks
    const int64_t count = std::min<int64_t>(64, gradient.numel());
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = gradient[i].item<double>();
    values = context.sum(values);
    for (int64_t i = 0; i < count; ++i) {
      gradient.data_ptr<float>()[i] =
          static_cast<float>(values[static_cast<size_t>(i)] / static_cast<double>(context.world()));
    }
  }
}

void expect_found(const std::function<void()>& act, const std::string& what) {
  try {
    act();
    ADD_FAILURE() << "the change was not noticed";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_NE(text.find("was changed after backward by something other than the engine"), std::string::npos) << text;
    EXPECT_NE(text.find("averaged over the ranks already"), std::string::npos) << text;
  }
}

RANK_CASE(StepCheck, a_host_that_averages_gradients_is_told_at_the_next_forward) {
  for (const char* strategy : {"full_shard", "shard_grad_op"}) {
    SCOPED_TRACE(strategy);
    Sharded sharded = sharded_after_backward(context, strategy, 2);
    const auto optimizer = make_optimizer(Optimizer::kMomentum, tensors_of(*sharded.engine), 0.05);
    average_by_the_host(context, *sharded.engine);
    optimizer->step();
    optimizer->zero_grad();  // lets go of the gradients
    expect_found([&] { next_token_loss(sharded.module, 1, context.rank()); }, "the gradient of `");
  }
}

/// The usual loop of a host that came from plain MPI: averages, then clips. Clipping must not hide the mistake.
RANK_CASE(StepCheck, gradients_averaged_before_an_own_call_are_found) {
  for (const int call : {0, 1, 2}) {
    Sharded sharded = sharded_after_backward(context, "full_shard", 2);
    average_by_the_host(context, *sharded.engine);
    expect_found(
        [&] {
          if (call == 0) sharded.engine->clip_gradient_norm(1, 2);
          if (call == 1) sharded.engine->clip_gradient_value(1);
          if (call == 2) sharded.engine->unscale_gradients(2);
        },
        "the gradient of `");
  }
}

/// The forwards between micro-batches see nothing wrong yet; the one after the step does.
RANK_CASE(StepCheck, gradients_averaged_after_several_micro_batches_are_found) {
  Sharded sharded = sharded_after_backward(context, "full_shard", 2);
  const auto optimizer = make_optimizer(Optimizer::kMomentum, tensors_of(*sharded.engine), 0.05);
  for (int64_t batch = 1; batch < 5; ++batch) next_token_loss(sharded.module, batch, context.rank()).backward();
  average_by_the_host(context, *sharded.engine);
  optimizer->step();
  expect_found([&] { next_token_loss(sharded.module, 9, context.rank()); }, "the gradient of `");
}

RANK_CASE(StepCheck, what_the_engine_writes_is_no_mistake) {
  Sharded sharded = sharded_after_backward(context, "full_shard", 2);
  sharded.engine->begin_local_use();
  for (auto& [name, tensor] : named_parameters(sharded.module)) tensor.mul_(2);
  sharded.engine->end_local_use(/*write_back=*/true);
  sharded.engine->check_step();
  sharded.engine->load_from(context.model_path(kModel.file));
  sharded.engine->check_step();
  next_token_loss(sharded.module, 1, context.rank());
}

RANK_CASE(StepCheck, one_rank_is_enough_and_all_are_told) {
  Sharded sharded = sharded_after_backward(context, "full_shard", 1);
  if (context.rank() == 1) {
    for (const at::Tensor& shard : tensors_of(*sharded.engine)) shard.grad().data_ptr<float>()[0] += 1;
  }
  expect_found([&] { sharded.engine->check_step(); }, "on rank 1");
}

RANK_CASE(StepCheck, shards_that_change_before_the_step_are_found_by_the_call) {
  Sharded sharded = sharded_after_backward(context, "full_shard", 1);
  sharded.engine->check_step();
  for (const at::Tensor& shard : tensors_of(*sharded.engine)) {
    if (shard.numel() > 0) shard.data_ptr<float>()[0] += 1;
  }
  expect_found([&] { sharded.engine->check_step(); }, "the shard of `");
}

RANK_CASE(StepCheck, a_usual_loop_passes) {
  Sharded sharded = sharded_after_backward(context, "full_shard", 3);
  const auto optimizer = make_optimizer(Optimizer::kAdamW, tensors_of(*sharded.engine), 0.01);
  for (int64_t step = 1; step < 6; ++step) {
    sharded.engine->clip_gradient_norm(0.01, 2);
    sharded.engine->clip_gradient_value(0.5);
    sharded.engine->check_step();
    optimizer->step();
    const at::Tensor loss = next_token_loss(sharded.module, step, context.rank());
    if (step % 2 == 0) optimizer->zero_grad();
    if (step % 2 == 1) optimizer->zero_grad(/*set_to_none=*/false);
    loss.backward();
    next_token_loss(sharded.module, step + 9, context.rank()).backward();  // accumulates
  }
}

RANK_CASE(StepCheck, it_ends_after_its_steps_and_can_be_switched_off) {
  for (const int64_t steps : {0, 1}) {
    auto communicator = context.new_communicator();
    auto module = load(context, kModel.file);
    Sharding sharding = by_layer(kModel);
    sharding.check_steps = steps;
    const auto engine = shard(context, module, sharding, communicator);
    if (steps == 1) {
      const auto optimizer = make_optimizer(Optimizer::kMomentum, tensors_of(*engine), 0.05);
      next_token_loss(module, 0, context.rank()).backward();
      optimizer->step();
      next_token_loss(module, 1, context.rank());
    }
    next_token_loss(module, 2, context.rank()).backward();
    for (const at::Tensor& shard : tensors_of(*engine)) shard.mutable_grad().mul_(3);
    const int64_t before = communicator->count(Collective::kAllGather);
    const int64_t gathers = engine->statistics().all_gathers;
    engine->check_step();
    next_token_loss(module, 3, context.rank());
    EXPECT_EQ(communicator->count(Collective::kAllGather) - before, engine->statistics().all_gathers - gathers)
        << "the check still communicates";
  }
}

}  // namespace
}  // namespace fsdp2::testing
