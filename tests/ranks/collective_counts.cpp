// How often units gather and reduce, by strategy, and what the engine's own counters say of it.
#include <gtest/gtest.h>

#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm", "Block"};

struct Wanted {
  int64_t forward_gathers;
  int64_t backward_gathers;
  int64_t reductions;
};

/// Three training steps; counts must be the same in each: the executor specialises on the second and third call.
void expect_counts(RankContext& context, const Sharding& sharding, Wanted wanted) {
  auto module = load(context, kModel.file);
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, sharding, communicator);
  const auto optimizer = make_optimizer(Optimizer::kSgd, tensors_of(*sharded), 0.01);
  for (int64_t step = 0; step < 3; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    optimizer->zero_grad();
    communicator->forget();
    sharded->reset_statistics();
    const at::Tensor loss = next_token_loss(module, step, context.rank());
    EXPECT_EQ(communicator->count(Collective::kAllGather), wanted.forward_gathers);
    EXPECT_EQ(communicator->records().size(), static_cast<size_t>(wanted.forward_gathers));
    loss.backward();
    EXPECT_EQ(communicator->count(Collective::kAllGather), wanted.forward_gathers + wanted.backward_gathers);
    const bool replicates = sharding.strategy == "no_shard";
    EXPECT_EQ(communicator->count(Collective::kReduceScatter), replicates ? 0 : wanted.reductions);
    EXPECT_EQ(communicator->count(Collective::kAllReduce), replicates ? wanted.reductions : 0);
    const Statistics statistics = sharded->statistics();
    EXPECT_EQ(statistics.all_gathers, communicator->count(Collective::kAllGather));
    EXPECT_EQ(statistics.all_gather_bytes, communicator->bytes(Collective::kAllGather));
    EXPECT_EQ(statistics.reduce_scatters, communicator->count(Collective::kReduceScatter));
    EXPECT_EQ(statistics.reduce_scatter_bytes, communicator->bytes(Collective::kReduceScatter));
    EXPECT_EQ(statistics.all_reduces, communicator->count(Collective::kAllReduce));
    EXPECT_EQ(statistics.all_reduce_bytes, communicator->bytes(Collective::kAllReduce));
    EXPECT_EQ(statistics.stale_gathers, 0);
    optimizer->step();
  }
}

Sharding with(const std::string& strategy, ReshardAfterForward reshard = ReshardAuto{}) {
  Sharding sharding = by_layer(kModel, strategy);
  sharding.reshard = reshard;
  return sharding;
}

RANK_CASE_ON(Behaviour_B4, full_shard_keeps_the_root, 2, 4) {
  expect_counts(context, with("full_shard"), {4, 3, 4});
}
RANK_CASE_ON(Behaviour_B4, full_shard_resharding_the_root_too, 2, 4) {
  expect_counts(context, with("full_shard", true), {4, 4, 4});
}
RANK_CASE_ON(Behaviour_B4, shard_grad_op, 2, 4) {
  expect_counts(context, with("shard_grad_op"), {4, 0, 4});
}
/// As many as ranks are true, 1 is false.
RANK_CASE_ON(Behaviour_B4, a_number_of_ranks, 4) {
  expect_counts(context, with("full_shard", int64_t{2}), {4, 4, 4});
  expect_counts(context, with("full_shard", int64_t{4}), {4, 4, 4});
  expect_counts(context, with("full_shard", int64_t{1}), {4, 0, 4});
}

/// Gathered by all in forward, by the two neighbours that hold all between them in backward; the bytes of what each
/// rank ends with are the same.
RANK_CASE_ON(Behaviour_B2, a_block_gathers_inside_itself, 4) {
  for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
    SCOPED_TRACE(name_of(layout));
    Sharding sharding = with("full_shard", int64_t{2});
    sharding.layout = layout;
    RecordedModel run(context, kModel, sharding);
    const Statistics rest = run.sharded->statistics();
    const auto gathers = [&] {
      int64_t bytes = 0;
      std::vector<int64_t> ranks;
      for (const CollectiveRecord& record : run.communicator->records()) {
        if (record.kind != Collective::kAllGather) continue;
        ranks.push_back(record.ranks);
        bytes += record.bytes;
      }
      EXPECT_EQ(bytes, rest.shard_bytes * 4);
      run.communicator->forget();
      return ranks;
    };
    const at::Tensor loss = next_token_loss(run.module, 0, context.rank());
    EXPECT_EQ(gathers(), (std::vector<int64_t>(4, 4)));
    EXPECT_EQ(run.sharded->statistics().unsharded_bytes, rest.shard_bytes * 4 / 2) << "half of all that is gathered";
    loss.backward();
    EXPECT_EQ(gathers(), (std::vector<int64_t>(4, 2)));
    EXPECT_EQ(run.sharded->statistics().unsharded_bytes, 0);
    // Without gradients a second forward finds the first one's.
    const at::NoGradGuard no_grad;
    run.sharded->zero_gradients();
    next_token_loss(run.module, 0, context.rank());
    EXPECT_EQ(gathers(), (std::vector<int64_t>(4, 4)));
    next_token_loss(run.module, 0, context.rank());
    EXPECT_EQ(gathers(), (std::vector<int64_t>(4, 2)));
  }
}

RANK_CASE_ON(CollectiveCounts, no_shard, 2, 4) {
  expect_counts(context, with("no_shard"), {0, 0, 4});
}
RANK_CASE_ON(CollectiveCounts, world_of_one_does_none, 1) {
  expect_counts(context, with("full_shard"), {0, 0, 0});
  expect_counts(context, with("full_shard", true), {0, 0, 0});
  expect_counts(context, with("shard_grad_op"), {0, 0, 0});
  expect_counts(context, with("no_shard"), {0, 0, 0});
}
RANK_CASE_ON(CollectiveCounts, world_of_one_when_forced, 1) {
  Sharding sharding = with("full_shard");
  sharding.force_collectives = true;
  expect_counts(context, sharding, {4, 3, 4});
  sharding.layout = Layout::kPerParameter;
  expect_counts(context, sharding, {4, 3, 4});
}

/// The root stays whole without gradients, the blocks do not.
RANK_CASE_ON(Behaviour_B18, the_root_stays_whole, 2, 4) {
  auto module = load(context, kModel.file);
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, with("full_shard"), communicator);
  const at::NoGradGuard guard;
  communicator->forget();
  module.forward({input_ids(0, context.rank())});
  EXPECT_EQ(communicator->count(Collective::kAllGather), 4);
  module.forward({input_ids(1, context.rank())});
  EXPECT_EQ(communicator->count(Collective::kAllGather), 7);
  EXPECT_EQ(communicator->records().size(), 7U);
}

/// Two micro-batches: gradients add up in the shards, each backward reduces.
RANK_CASE_ON(Behaviour_E1, accumulated_backwards, 2, 4) {
  auto reference = load(context, kModel.file);
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (next_token_loss(reference, step, rank) / static_cast<double>(context.world())).backward();
    }
  }
  TensorsByName gradients;
  for (const auto& [name, tensor] : named_parameters(reference)) gradients[name] = tensor.grad();

  auto module = load(context, kModel.file);
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, with("full_shard"), communicator);
  communicator->forget();
  for (int64_t step = 0; step < 2; ++step) next_token_loss(module, step, context.rank()).backward();
  EXPECT_EQ(communicator->count(Collective::kReduceScatter), 8);
  expect_gradients_equal(*sharded, gradients);
}

/// Every byte of a gather and a reduction is a parameter or its padding.
RANK_CASE_ON(CollectiveCounts, bytes, 2, 4) {
  for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
    Sharding sharding = with("full_shard");
    sharding.layout = layout;
    auto module = load(context, kModel.file);
    auto communicator = context.new_communicator();
    const auto sharded = shard(context, module, sharding, communicator);
    communicator->forget();
    next_token_loss(module, 0, context.rank()).backward();
    const Statistics statistics = sharded->statistics();
    const int64_t whole = statistics.parameter_bytes + statistics.padding_bytes;
    EXPECT_EQ(communicator->bytes(Collective::kReduceScatter), whole);
    const int64_t root = shard_bytes(sharded->plan().units.back()) * context.world();
    EXPECT_EQ(communicator->bytes(Collective::kAllGather), 2 * whole - root);
    EXPECT_EQ(statistics.all_gather_bytes, 2 * whole - root);
    EXPECT_EQ(statistics.reduce_scatter_bytes, whole);
  }
}

}  // namespace
}  // namespace fsdp2::testing
