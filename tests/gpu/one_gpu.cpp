// One GPU, one rank, collectives forced: every gather and reduction goes through NCCL. NCCL refuses two ranks on one
// GPU.
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugin/engine/c10d_communicator.hpp"
#include "plugin/engine/c10d_environment.hpp"
#include "plugin/sharded_module.hpp"
#include "plugin/wrap/planner.hpp"
#include "tests/ranks/harness/data.hpp"

namespace fsdp2::testing {
namespace {

constexpr int64_t kVocabulary = 257;
const c10::Device kGpu(c10::kCUDA, 0);

at::Tensor loss_of(torch::jit::Module& module, int64_t step) {
  const at::Tensor ids = token_ids(step, 0, 2, 17, kVocabulary).to(kGpu);
  const at::Tensor logits = module.forward({ids.slice(1, 0, 16)}).toTensor();
  return at::cross_entropy_loss(logits.reshape({-1, kVocabulary}), ids.slice(1, 1, 17).reshape({-1}));
}

std::string models_folder() {
  const char* folder = std::getenv("FSDP2_TEST_MODELS");
  if (folder == nullptr) throw std::runtime_error("FSDP2_TEST_MODELS names no folder");
  return folder;
}

torch::jit::Module load() {
  auto module = torch::jit::load(models_folder() + "/lm.pt", kGpu);
  module.train();
  return module;
}

std::vector<double> trained(torch::jit::Module& module, std::vector<at::Tensor> parameters) {
  torch::optim::SGD optimizer(std::move(parameters), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::vector<double> losses;
  for (int64_t step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(module, step);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

std::unique_ptr<ShardedModule> shard(const torch::jit::Module& module, const std::string& strategy, Layout layout) {
  Fsdp2Options options;
  options.strategy = strategy;
  options.layout = layout;
  options.wrap.policy = WrapPolicy::kTransformer;
  options.wrap.layer_classes = {"Block"};
  options.debug.force_collectives = true;
  return ShardedModule::shard(
      module, communicator_from_environment("nccl", kGpu, Timeout(60000)),
      [&](const ModuleTree& tree, int64_t world) { return make_plan(tree, options, world); }, nullptr);
}

class OneGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
  }

  static void expect_trains_like_unsharded(const std::string& strategy, Layout layout) {
    auto plain = load();
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : plain.parameters()) parameters.push_back(parameter);
    const std::vector<double> wanted = trained(plain, parameters);

    auto module = load();
    const auto sharded = shard(module, strategy, layout);
    std::vector<at::Tensor> shards;
    for (const NamedTensor& parameter : sharded->parameters()) shards.push_back(parameter.tensor);
    const std::vector<double> losses = trained(module, shards);
    for (size_t step = 0; step < wanted.size(); ++step) EXPECT_NEAR(losses[step], wanted[step], 2e-5) << strategy;
    const Statistics statistics = sharded->statistics();
    EXPECT_GT(statistics.all_gathers + statistics.all_reduces, 0) << "nothing went through NCCL";
    if (strategy != "no_shard") {
      EXPECT_EQ(statistics.unsharded_bytes, 0);
    }
    sharded->detach();
    EXPECT_TRUE(
        module.forward({token_ids(0, 0, 2, 16, kVocabulary).to(kGpu)}).toTensor().isfinite().all().item<bool>());
  }
};

TEST_F(OneGpu, TrainsLikeUnsharded) {
  for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
    for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) expect_trains_like_unsharded(strategy, layout);
  }
}

TEST_F(OneGpu, TrainsOnAnotherStream) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(kGpu);
  const c10::StreamGuard guard(stream);
  expect_trains_like_unsharded("full_shard", Layout::kRagged);
}

}  // namespace
}  // namespace fsdp2::testing
