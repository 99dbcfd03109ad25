// In which order units gather and reduce, and what runs ahead: rows of docs/behaviours.md, section C. The orders are
// those of PyTorch's FSDP2.
#include <gtest/gtest.h>

#include "tests/ranks/harness/refusal.hpp"
#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm", "Block"};

/// "U 0": a gather of block 0, "P r": a reduction of the root.
std::string events(const RecordingCommunicator& communicator) {
  std::string text;
  for (const CollectiveRecord& record : communicator.records()) {
    if (!text.empty()) text += ", ";
    text += record.kind == Collective::kAllGather ? "U " : "P ";
    const size_t block = record.purpose.find("layers.");
    text += block == std::string::npos ? "r" : record.purpose.substr(block + 7, 1);
  }
  return text;
}

struct Run : RecordedModel {
  Run(RankContext& context, const Sharding& sharding) : RecordedModel(context, kModel, sharding) {}
  std::string events_of(const std::function<void()>& act) {
    communicator->forget();
    act();
    return events(*communicator);
  }
};

Sharding resharding(ReshardAfterForward reshard) {
  Sharding sharding = by_layer(kModel);
  if (const bool* flag = std::get_if<bool>(&reshard); flag != nullptr && !*flag) sharding.strategy = "shard_grad_op";
  sharding.reshard = reshard;
  return sharding;
}

/// Three steps: the first one has no forward to learn from, and the executor specialises on the later ones.
void expect_order(RankContext& context, const Sharding& sharding, const std::string& forward,
                  const std::string& backward) {
  Run run(context, sharding);
  for (int64_t step = 0; step < 3; ++step) {
    at::Tensor loss;
    EXPECT_EQ(run.events_of([&] { loss = next_token_loss(run.module, step, context.rank()); }), forward);
    EXPECT_EQ(run.events_of([&] { loss.backward(); }), backward);
    run.sharded->zero_gradients();
  }
}

RANK_CASE(Behaviour_C2, backward_gathers_one_ahead) {
  expect_order(context, resharding(true), "U r, U 0, U 1, U 2", "U r, U 2, U 1, P 2, U 0, P 1, P 0, P r");
}
RANK_CASE(Behaviour_C3, the_root_stays_whole) {
  expect_order(context, resharding(ReshardAuto{}), "U r, U 0, U 1, U 2", "U 2, U 1, P 2, U 0, P 1, P 0, P r");
}
RANK_CASE(Behaviour_C4, nothing_to_gather_in_backward) {
  expect_order(context, resharding(false), "U r, U 0, U 1, U 2", "P 2, P 1, P 0, P r");
}
RANK_CASE(Prefetch, off_each_unit_waits_for_its_turn) {
  Sharding sharding = resharding(true);
  sharding.prefetch = {0, 0};
  expect_order(context, sharding, "U r, U 0, U 1, U 2", "U r, U 2, P 2, U 1, P 1, U 0, P 0, P r");
}

RANK_CASE(Behaviour_C6, two_forwards_one_backward) {
  // Autograd adds up both uses of a parameter before it hands over the gradient, so there is one reduction.
  const std::string twice = "U 2, U 1, U 0, U 2, U 1, P 2, U 0, P 1, P 0, P r";
  for (const bool root_too : {true, false}) {
    Run run(context, resharding(root_too ? ReshardAfterForward(true) : ReshardAuto{}));
    at::Tensor loss = next_token_loss(run.module, 0, context.rank());
    EXPECT_EQ(run.events_of([&] { loss = loss + next_token_loss(run.module, 1, context.rank()); }),
              root_too ? "U r, U 0, U 1, U 2" : "U 0, U 1, U 2");
    EXPECT_EQ(run.events_of([&] { loss.backward(); }), (root_too ? "U r, " : "") + twice);
  }
}

/// Whole from forward on for the first half of backward; that half reshards them.
RANK_CASE(Behaviour_C8, two_forwards_of_kept_units) {
  Run run(context, resharding(false));
  at::Tensor loss = next_token_loss(run.module, 0, context.rank());
  EXPECT_EQ(run.events_of([&] { loss = loss + next_token_loss(run.module, 1, context.rank()); }), "");
  EXPECT_EQ(run.events_of([&] { loss.backward(); }), "U 2, U 1, P 2, U 0, P 1, P 0, P r");
}

/// Steps, and forwards without gradients between them.
RANK_CASE_ON(Behaviour_C14, ranks_communicate_in_one_order, 2, 4) {
  Run run(context, resharding(ReshardAuto{}));
  const auto optimizer = make_optimizer(Optimizer::kSgd, tensors_of(*run.sharded), 0.01);
  for (int64_t step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    next_token_loss(run.module, step, context.rank()).backward();
    optimizer->step();
    const at::NoGradGuard no_grad;
    next_token_loss(run.module, step, context.rank());
  }
  std::string text;
  for (const CollectiveRecord& record : run.communicator->records()) {
    text += record.purpose + std::to_string(static_cast<int>(record.kind)) + std::to_string(record.bytes);
  }
  const auto digest = static_cast<double>(std::hash<std::string>{}(text) % 1000003);
  EXPECT_EQ(context.sum(digest), digest * static_cast<double>(context.world()));
}

/// The most that is whole at once is the plan's, however far gathers run ahead.
RANK_CASE_ON(Behaviour_C11, memory_of_gathers_ahead, 1, 2) {
  for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
    for (const int64_t depth : {0, 1, 2, 9}) {
      for (const ReshardAfterForward reshard : {ReshardAfterForward(true), ReshardAfterForward(ReshardAuto{})}) {
        Sharding sharding = resharding(reshard);
        sharding.prefetch = {depth, depth};
        sharding.layout = layout;
        Run run(context, sharding);
        for (int64_t step = 0; step < 2; ++step) next_token_loss(run.module, step, context.rank()).backward();
        const Statistics statistics = run.sharded->statistics();
        EXPECT_EQ(statistics.unsharded_peak_bytes, statistics.planned_peak_bytes)
            << depth << " ahead, " << name_of(layout);
        EXPECT_EQ(statistics.unsharded_bytes, 0);
      }
    }
  }
}

RANK_CASE(Behaviour_C13, far_ahead_trains_like_unsharded) {
  Recipe recipe;
  recipe.loss = next_token_loss;
  recipe.steps = 3;
  Sharding sharding = by_layer(kModel);
  sharding.prefetch = {2, 2};
  expect_trains_like_unsharded(context, kModel.file, sharding, recipe);
}

/// What was gathered for a unit that then does not run is dropped.
RANK_CASE(Behaviour_C9, a_wrong_guess_does_no_harm) {
  auto module = load(context, "late_comer");
  Sharding sharding;
  sharding.modules = {"a", "b"};
  const auto sharded = shard(context, module, sharding);
  const at::Tensor x = at::ones({1, 4}) * (context.rank() + 1.0);
  for (const bool both : {true, false, false, true}) {
    sharded->zero_gradients();
    module.forward({x, both}).toTensor().backward();
    EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
    for (const auto& [name, tensor] : sharded->parameters()) {
      if (name == "b.weight" && !both) {
        EXPECT_FALSE(tensor.grad().defined());
        continue;
      }
      EXPECT_TRUE(at::equal(tensor.grad(), at::full_like(tensor, 1.5))) << name;
    }
  }
}

RANK_CASE(Behaviour_E11, sums_of_a_pass_that_is_not_the_last_end_later) {
  auto reference = load(context, kModel.file);
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (next_token_loss(reference, batch, rank) / static_cast<double>(context.world())).backward();
    }
  }
  TensorsByName wanted;
  for (const auto& [name, tensor] : named_parameters(reference)) wanted[name] = tensor.grad();
  Run run(context, by_layer(kModel));
  run.sharded->set_last_backward(false);
  next_token_loss(run.module, 0, context.rank()).backward();
  run.sharded->set_last_backward(true);
  next_token_loss(run.module, 1, context.rank()).backward();
  expect_gradients_equal(*run.sharded, wanted);
}

}  // namespace
}  // namespace fsdp2::testing
