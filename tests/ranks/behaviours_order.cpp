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

/// By the units' names: the last block ahead of the first one, and two ahead in backward, as a depth of 2 would.
RANK_CASE(Behaviour_C12, named_units_in_place_of_the_expected_ones) {
  Run run(context, resharding(true));
  ShardedModule& sharded = *run.sharded;
  sharded.set_prefetch("layers.0", {"layers.2"}, /*backward=*/false);
  sharded.set_prefetch("layers.2", {"layers.1", "layers.0"}, /*backward=*/true);
  for (int64_t step = 0; step < 2; ++step) {
    at::Tensor loss;
    EXPECT_EQ(run.events_of([&] { loss = next_token_loss(run.module, step, context.rank()); }), "U r, U 0, U 2, U 1");
    EXPECT_EQ(run.events_of([&] { loss.backward(); }), "U r, U 2, U 1, U 0, P 2, P 1, P 0, P r");
    const Statistics statistics = sharded.statistics();
    EXPECT_EQ(statistics.unsharded_peak_bytes, statistics.planned_peak_bytes);
    EXPECT_EQ(statistics.unsharded_bytes, 0);
    sharded.zero_gradients();
  }
  sharded.set_prefetch("layers.0", {}, /*backward=*/false);
  sharded.set_prefetch("layers.2", {}, /*backward=*/true);
  at::Tensor loss;
  EXPECT_EQ(run.events_of([&] { loss = next_token_loss(run.module, 2, context.rank()); }), "U r, U 0, U 1, U 2");
  EXPECT_EQ(run.events_of([&] { loss.backward(); }), "U r, U 2, U 1, P 2, U 0, P 1, P 0, P r");
}

RANK_CASE(Behaviour_C12, names_that_are_no_units) {
  Run run(context, resharding(true));
  const auto refused = [&](const std::string& path, const std::string& ahead) {
    return refusal_of([&] { run.sharded->set_prefetch(path, {ahead}, /*backward=*/false); }).text;
  };
  EXPECT_EQ(refused("layer.0", ""), "no unit `layer.0`; did you mean `layers.0`?");
  EXPECT_EQ(refused("", "layers.3").find("no unit `layers.3`"), 0U);
  EXPECT_EQ(refused("layers.1", "layers.1"), "unit `layers.1` cannot be gathered ahead of itself");
}

/// The first block asks for the last one in backward, which is done by then.
RANK_CASE(Behaviour_C10, a_wrong_name_trains_like_unsharded) {
  const auto named = [](ShardedModule& sharded) {
    sharded.set_prefetch("layers.0", {"layers.2"}, /*backward=*/true);
    sharded.set_prefetch("layers.2", {"layers.0"}, /*backward=*/false);
  };
  auto reference = load(context, kModel.file);
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : named_parameters(reference)) parameters.push_back(tensor);
  const auto plain = make_optimizer(Optimizer::kSgd, parameters, 0.05);
  Run run(context, resharding(ReshardAuto{}));
  named(*run.sharded);
  const auto optimizer = make_optimizer(Optimizer::kSgd, tensors_of(*run.sharded), 0.05);
  for (int64_t step = 0; step < 3; ++step) {
    plain->zero_grad();
    optimizer->zero_grad();
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (next_token_loss(reference, step, rank) / static_cast<double>(context.world())).backward();
    }
    next_token_loss(run.module, step, context.rank()).backward();
    EXPECT_EQ(run.sharded->statistics().unsharded_bytes, 0);
    plain->step();
    optimizer->step();
  }
  expect_shards_equal(*run.sharded, named_parameters(reference), 1e-5);
}

RANK_CASE(Behaviour_E11, sums_of_a_pass_that_is_not_the_last_end_later) {
  auto reference = load(context, kModel.file);
  for (int64_t batch = 0; batch < 4; ++batch) {
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (next_token_loss(reference, batch, rank) / static_cast<double>(context.world())).backward();
    }
  }
  TensorsByName wanted;
  for (const auto& [name, tensor] : named_parameters(reference)) wanted[name] = tensor.grad();
  Run run(context, by_layer(kModel));
  run.sharded->set_last_backward(false);
  for (int64_t batch = 0; batch < 3; ++batch) next_token_loss(run.module, batch, context.rank()).backward();
  run.sharded->set_last_backward(true);
  next_token_loss(run.module, 3, context.rank()).backward();
  expect_gradients_equal(*run.sharded, wanted);
}

}  // namespace
}  // namespace fsdp2::testing
