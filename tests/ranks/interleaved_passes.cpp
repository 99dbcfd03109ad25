// Reported faults of use: two forwards before two backwards, and an optimizer made after the model was used.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/harness/training.hpp"

namespace fsdp2::testing {
namespace {

struct Wanted {
  double first;
  double second;
  std::vector<double> sums;
  std::vector<double> absolute_sums;
};

const std::map<int64_t, Wanted> kTwoForwards{
    {1, {0.227611, 0.200662, {0.031400, 0.483476, -0.119334, 2.358966}, {0.505224, 1.177121, 3.357797, 4.678699}}},
    {2, {0.304862, 0.277122, {0.665085, 0.401523, -0.674937, 2.808454}, {3.709350, 1.459477, 4.040600, 5.152625}}}};

void two_forwards(RankContext& context, const Sharding& sharding, bool one_backward) {
  const Wanted& wanted = kTwoForwards.at(context.world());
  auto module = load(context, "two_layers");
  const auto sharded = shard(context, module, sharding);
  const double r = static_cast<double>(context.rank());
  const double w = static_cast<double>(context.world());
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
    const at::Tensor first = module.forward({fill({2, 4}, 5) + r}).toTensor().pow(2).sum();
    const at::Tensor second = module.forward({fill({2, 4}, 9) + r}).toTensor().pow(2).sum();
    EXPECT_NEAR(context.sum(first.item<double>()) / w, wanted.first, 2e-5);
    EXPECT_NEAR(context.sum(second.item<double>()) / w, wanted.second, 2e-5);
    if (one_backward) {
      (first + second).backward();
    } else {
      first.backward();
      second.backward();
    }
    size_t p = 0;
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, tensor] : sharded->parameters()) {
      ASSERT_TRUE(tensor.grad().defined()) << name;
      gradients[name] = tensor.grad();
    }
    for (const char* name : {"up.weight", "up.bias", "down.weight", "down.bias"}) {
      const at::Tensor& gradient = gradients.at(name);
      EXPECT_NEAR(context.sum(gradient.sum().item<double>()), wanted.sums[p], 2e-5) << name;
      EXPECT_NEAR(context.sum(gradient.abs().sum().item<double>()), wanted.absolute_sums[p], 2e-5) << name;
      ++p;
    }
    EXPECT_EQ(sharded->statistics().unsharded_bytes, 0) << "something is still whole";
  }
}

void two_forwards_all_ways(RankContext& context, bool one_backward) {
  for (const bool units : {true, false}) {
    for (const ReshardAfterForward reshard : {ReshardAfterForward{ReshardAuto{}}, ReshardAfterForward{true}}) {
      Sharding sharding;
      if (units) sharding.classes = {"Linear"};
      sharding.reshard = reshard;
      two_forwards(context, sharding, one_backward);
    }
    Sharding kept;
    if (units) kept.classes = {"Linear"};
    kept.strategy = "shard_grad_op";
    two_forwards(context, kept, one_backward);
  }
}

RANK_CASE_ON(Behaviour_H11, two_forwards_then_two_backwards, 1, 2) {
  two_forwards_all_ways(context, false);
}
RANK_CASE_ON(Behaviour_H10, two_forwards_then_one_backward, 1, 2) {
  two_forwards_all_ways(context, true);
}

void optimizer_after_a_forward(RankContext& context, bool with_gradients, ReshardAfterForward reshard,
                               const std::string& strategy) {
  auto module = load(context, "scale");
  Sharding sharding;
  sharding.reshard = reshard;
  sharding.strategy = strategy;
  const auto sharded = shard(context, module, sharding);
  const auto before = tensors_of(*sharded);
  if (with_gradients) {
    module.forward({at::ones({8})});
  } else {
    const at::NoGradGuard guard;
    module.forward({at::ones({8})});
  }
  std::vector<at::Tensor> held;
  for (const at::Tensor& parameter : module.parameters()) held.push_back(parameter);
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0].unsafeGetTensorImpl(), before.at(0).unsafeGetTensorImpl());
  EXPECT_EQ(held[0].numel(), strategy == "no_shard" ? 8 : 8 / context.world());
  torch::optim::SGD optimizer(held, torch::optim::SGDOptions(0.1));
  for (const double wanted : {0.9, 0.8}) {
    optimizer.zero_grad();
    module.forward({at::ones({8})}).toTensor().sum().backward();
    optimizer.step();
    EXPECT_EQ((*module.parameters().begin()).unsafeGetTensorImpl(), held[0].unsafeGetTensorImpl());
    const at::Tensor p = held[0].detach();
    EXPECT_LE((p - wanted).abs().max().item<double>(), 1e-6);
    const at::NoGradGuard guard;
    const at::Tensor seen = module.forward({at::ones({8})}).toTensor();
    EXPECT_LE((seen - wanted).abs().max().item<double>(), 1e-6) << "the step has no effect";
  }
}

RANK_CASE_ON(Behaviour_I14, optimizer_made_after_a_forward, 1, 2) {
  for (const bool with_gradients : {false, true}) {
    optimizer_after_a_forward(context, with_gradients, ReshardAuto{}, "full_shard");
    optimizer_after_a_forward(context, with_gradients, true, "full_shard");
    optimizer_after_a_forward(context, with_gradients, ReshardAuto{}, "shard_grad_op");
    optimizer_after_a_forward(context, with_gradients, ReshardAuto{}, "no_shard");
  }
}

}  // namespace
}  // namespace fsdp2::testing
