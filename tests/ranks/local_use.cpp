// Gathered for local use: forwards that only some ranks run, reads, copies and writes of full parameters.
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include "registry/error.hpp"
#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm_tied", "Block"};

at::Tensor logits(torch::jit::Module& module, int64_t step) {
  const at::NoGradGuard guard;
  return module.forward({input_ids(step, 0)}).toTensor().clone();
}

/// Training with a validation on rank 0 after every step, against training without any.
void validate_on_rank_0(RankContext& context, const std::string& strategy) {
  SCOPED_TRACE(strategy);
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  Recipe recipe;
  recipe.loss = next_token_loss;
  const Reference reference = train_unsharded(load(context, kModel.file), recipe, context.world());
  auto module = load(context, kModel.file);
  auto plain = load(context, kModel.file);
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, by_layer(kModel, strategy), communicator);
  const auto optimizer = make_optimizer(recipe.optimizer, tensors_of(*sharded), recipe.rate);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    optimizer->zero_grad();
    const at::Tensor loss = recipe.loss(module, step, context.rank());
    EXPECT_NEAR(loss.item<double>(), reference.losses[static_cast<size_t>(step)][static_cast<size_t>(context.rank())],
                2e-5);
    loss.backward();
    optimizer->step();

    sharded->begin_local_use();
    communicator->forget();
    if (context.rank() == 0) {
      // A copy for elsewhere: every parameter by its name, whole.
      const at::NoGradGuard guard;
      const auto own = named_parameters(plain);
      for (const auto& [name, tensor] : named_parameters(module)) own.at(name).copy_(tensor);
      for (int64_t batch = 0; batch < 3; ++batch) {
        EXPECT_LE((logits(module, batch) - logits(plain, batch)).abs().max().item<double>(), 1e-5);
      }
    }
    EXPECT_TRUE(communicator->records().empty());
    sharded->end_local_use(/*write_back=*/false);
    EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
  }
  if (context.rank() == 0) expect_parameters_equal(plain, reference.parameters, {});
  sharded->detach();
  expect_parameters_equal(module, reference.parameters, {});
}

RANK_CASE_ON(LocalUse, validation_on_rank_0, 1, 2) {
  for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"}) validate_on_rank_0(context, strategy);
}

RANK_CASE_ON(LocalUse, what_is_written_back_stays, 2, 4) {
  struct Case {
    const char* model;
    const char* unit_class;
    Layout layout;
  };
  for (const auto& [model, unit_class, layout] :
       {Case{"ThreeLayers", "Layer", Layout::kRagged}, Case{"TinyUnits", "TinyUnit", Layout::kPerParameter}}) {
    Sharding sharding = units_of({unit_class});
    sharding.layout = layout;
    for (const bool write_back : {true, false}) {
      auto module = load(context, model);
      const auto before = named_parameters(load(context, model));
      const auto sharded = shard(context, module, sharding);
      sharded->begin_local_use();
      {
        const at::NoGradGuard guard;
        for (const at::Tensor& tensor : module.parameters()) tensor.mul_(2.0);
      }
      sharded->end_local_use(write_back);
      TensorsByName wanted;
      for (const auto& [name, tensor] : before) wanted[name] = tensor.detach() * (write_back ? 2.0 : 1.0);
      expect_shards_equal(*sharded, wanted, 0);
      sharded->detach();
      for (const auto& [name, tensor] : named_parameters(module)) EXPECT_TRUE(tensor.equal(wanted.at(name))) << name;
    }
  }
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    return error.what();
  }
  return "no error";
}

/// set_data() on a gathered parameter: its memory is copied, and the next forward computes with it.
RANK_CASE(LocalUse, memory_put_in_the_place_of_a_gathered_parameter) {
  auto module = load(context, "ThreeLayers");
  auto plain = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  sharded->begin_local_use();
  for (const auto& parameter : module.named_parameters()) {
    at::Tensor tensor = parameter.value;
    tensor.set_data(at::full(tensor.sizes(), 0.125));
  }
  sharded->end_local_use(/*write_back=*/true);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : plain.named_parameters()) at::Tensor(parameter.value).fill_(0.125);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_TRUE(
        at::allclose(module.forward({odd_input(0, 0)}).toTensor(), plain.forward({odd_input(0, 0)}).toTensor()));
  }
}

RANK_CASE(LocalUse, order_of_calls) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  EXPECT_NE(refusal([&] { sharded->end_local_use(false); }).find("not gathered"), std::string::npos);
  const at::Tensor pending = mean_square(module.forward({odd_input(0, context.rank())}));
  sharded->begin_local_use();
  EXPECT_NE(refusal([&] { sharded->begin_local_use(); }).find("release"), std::string::npos);
  EXPECT_NE(refusal([&] { sharded->detach(); }).find("release"), std::string::npos);
  EXPECT_FALSE(module.forward({odd_input(0, context.rank())}).toTensor().requires_grad());
  EXPECT_ANY_THROW(pending.backward({}, /*keep_graph=*/true));
  sharded->end_local_use(false);
  // What was pending goes on, and training with it.
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  expect_gradients_equal(*sharded, reference.gradients[0]);
  sharded->detach();
  EXPECT_NE(refusal([&] { sharded->begin_local_use(); }).find("detached"), std::string::npos);
}

}  // namespace
}  // namespace fsdp2::testing
