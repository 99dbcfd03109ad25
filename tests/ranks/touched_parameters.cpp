// A host may touch every parameter of the wrapped module at any time: what it finds is a shard, never freed memory.
#include <gtest/gtest.h>

#include <set>

#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

/// Every kind of access on everything the module shows. Returns the sum of all elements of parameters, each once.
double touch(RankContext& context, torch::jit::Module& module, const ShardedModule& sharded) {
  std::map<void*, std::string> shards;
  for (const auto& [name, tensor] : sharded.parameters()) shards[tensor.unsafeGetTensorImpl()] = name;
  double sum = 0;
  std::set<void*> seen;
  for (const auto& parameter : module.named_parameters()) {
    SCOPED_TRACE(parameter.name);
    const at::Tensor& tensor = parameter.value;
    EXPECT_EQ(shards.count(tensor.unsafeGetTensorImpl()), 1U) << "the slot holds something else than a shard";
    const double of_tensor = tensor.sum().item<double>();
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) sum += of_tensor;
    EXPECT_TRUE(tensor.clone().equal(tensor));
    EXPECT_GE(tensor.norm().item<double>(), 0);
    EXPECT_EQ(tensor.to(at::kDouble).numel(), tensor.numel());
    EXPECT_TRUE(tensor.is_contiguous());
    EXPECT_TRUE(tensor.is_leaf());
    const at::NoGradGuard guard;
    tensor.detach().copy_(tensor.clone());
    tensor.copy_(tensor.clone());
  }
  EXPECT_EQ(seen.size(), shards.size());
  return context.sum(sum);
}

void touch_all_along(RankContext& context, const LanguageModel& model, const std::string& strategy) {
  auto plain = load(context, model.file);
  double wanted = 0;
  std::set<void*> seen;
  for (const auto& parameter : plain.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) wanted += parameter.sum().item<double>();
  }
  if (strategy == "no_shard") wanted *= static_cast<double>(context.world());
  const double tolerance = 1e-3;

  auto module = load(context, model.file);
  const auto sharded = shard(context, module, by_layer(model, strategy));
  EXPECT_NEAR(touch(context, module, *sharded), wanted, tolerance) << "at rest";
  for (int64_t step = 0; step < 3; ++step) {
    const at::Tensor loss = next_token_loss(module, step, context.rank());
    EXPECT_NEAR(touch(context, module, *sharded), wanted, tolerance) << "between forward and backward";
    loss.backward();
    EXPECT_NEAR(touch(context, module, *sharded), wanted, tolerance) << "after backward";
    const at::NoGradGuard guard;
    module.forward({input_ids(step, context.rank())});
    EXPECT_NEAR(touch(context, module, *sharded), wanted, tolerance) << "after a forward without gradients";
  }
  sharded->detach();
  for (const auto& parameter : module.named_parameters()) {
    EXPECT_TRUE(parameter.value.equal(named_parameters(plain).at(parameter.name))) << parameter.name;
  }
}

const bool added = [] {
  for (const LanguageModel& model : language_models()) {
    if (model.file != "lm_tied" && model.file != "lm_traced" && model.file != "hf_gpt2_tied") continue;
    for (const std::string strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
      add_case(__FILE__, __LINE__, "TouchedParameters", model.file + "_" + strategy,
               [model, strategy](RankContext& context) { touch_all_along(context, model, strategy); });
    }
  }
  return true;
}();

/// A unit is whole only inside its own window: a parameter read there by the unit is full, one of another unit is not.
RANK_CASE(TouchedParameters, inside_a_hook_of_backward) {
  auto module = load(context, "ThreeLayers");
  Sharding sharding;
  sharding.classes = {"Layer"};
  const auto sharded = shard(context, module, sharding);
  at::Tensor x = fill({2, 8}, 5).requires_grad_(true);
  int calls = 0;
  const at::Tensor y = module.forward({x}).toTensor();
  y.register_hook([&](const at::Tensor&) {
    ++calls;
    for (const auto& parameter : module.parameters()) EXPECT_TRUE(std::isfinite(parameter.sum().item<double>()));
  });
  x.register_hook([&](const at::Tensor&) {
    ++calls;
    for (const auto& parameter : module.parameters()) EXPECT_TRUE(std::isfinite(parameter.sum().item<double>()));
  });
  y.sum().backward();
  EXPECT_EQ(calls, 2);
}

/// The sharded tensors stay the same objects for good.
RANK_CASE(Behaviour_I3, objects_stay) {
  auto module = load(context, "ThreeLayers");
  Sharding sharding;
  sharding.classes = {"Layer"};
  const auto sharded = shard(context, module, sharding);
  const auto before = tensors_of(*sharded);
  const auto optimizer = make_optimizer(Optimizer::kAdamW, before, 0.01);
  for (int step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    mean_square(module.forward({fill({2, 8}, 5)})).backward();
    optimizer->step();
    const auto after = tensors_of(*sharded);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(after[i].unsafeGetTensorImpl(), before[i].unsafeGetTensorImpl());
      EXPECT_EQ(after[i].data_ptr(), before[i].data_ptr());
    }
  }
  // Both ways to reset gradients.
  for (const at::Tensor& tensor : before) ASSERT_TRUE(tensor.grad().defined());
  optimizer->zero_grad(false);
  mean_square(module.forward({fill({2, 8}, 5)})).backward();
  auto plain = load(context, "ThreeLayers");
  sharded->detach();
  EXPECT_FALSE(plain.parameters().size() == 0);
}

}  // namespace
}  // namespace fsdp2::testing
