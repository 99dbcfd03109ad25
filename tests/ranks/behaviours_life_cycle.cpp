// When units are whole: rows B of PyTorch's behaviours, explicit unshard and reshard among them.
#include <gtest/gtest.h>

#include "registry/error.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

namespace jit = torch::jit;

/// Three layers and a root around them without parameters of its own.
struct Run {
  explicit Run(RankContext& ranks, ReshardAfterForward reshard = ReshardAuto{},
               const std::string& strategy = "full_shard", const std::string& model = "ThreeLayers")
      : context(ranks), module(load(ranks, model)), communicator(ranks.new_communicator()) {
    Sharding sharding = units_of({"Layer"});
    sharding.strategy = strategy;
    sharding.reshard = reshard;
    sharded = shard(ranks, module, sharding, communicator);
    communicator->forget();
  }
  /// All-gathers since the last call.
  int64_t gathers() {
    const int64_t count = communicator->count(Collective::kAllGather);
    communicator->forget();
    return count;
  }
  at::Tensor loss(int64_t step = 0) { return mean_square(module.forward({odd_input(step, context.rank())})); }
  [[nodiscard]] int64_t whole() const { return sharded->statistics().unsharded_bytes; }
  void unshard(const std::string& path, bool recurse = false) const {
    for (const auto& unit : sharded->start_unshard(path, recurse)) unit.lock()->finish_unshard();
  }

  RankContext& context;
  jit::Module module;
  std::shared_ptr<RecordingCommunicator> communicator;
  std::unique_ptr<ShardedModule> sharded;
};

std::string refusal(const std::function<void()>& run, ErrorCode code) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

/// Resharded by hand between forward and backward: all are gathered again.
RANK_CASE_ON(Behaviour_B5, resharded_by_hand, 2, 4) {
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  Run run(context, ReshardAuto{}, "shard_grad_op");
  const at::Tensor loss = run.loss();
  EXPECT_EQ(run.gathers(), 3);
  EXPECT_GT(run.whole(), 0);
  run.sharded->reshard("", /*recurse=*/true);
  EXPECT_EQ(run.whole(), 0);
  run.sharded->reshard("", /*recurse=*/true);  // nothing left to do
  loss.backward();
  EXPECT_EQ(run.gathers(), 3);
  expect_gradients_equal(*run.sharded, reference.gradients[0]);
}

RANK_CASE(Behaviour_B6, setter_of_reshard_after_forward) {
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(3), context.world());
  Run run(context, ReshardAuto{}, "shard_grad_op");
  const auto step = [&](int64_t number, int64_t in_backward) {
    SCOPED_TRACE(number);
    run.sharded->zero_gradients();
    const at::Tensor loss = run.loss(number);
    EXPECT_EQ(run.gathers(), 3);
    EXPECT_LE(run.sharded->statistics().unsharded_peak_bytes, run.sharded->statistics().planned_peak_bytes);
    loss.backward();
    EXPECT_EQ(run.gathers(), in_backward);
    run.sharded->reset_statistics();
  };
  step(0, 0);
  run.sharded->set_reshard_after_forward("b", /*recurse=*/false, true);
  step(1, 1);
  run.sharded->set_reshard_after_forward("", /*recurse=*/true, true);
  step(2, 3);
  run.sharded->set_reshard_after_forward("", /*recurse=*/false, false);  // the root alone, which has no parameters
  step(0, 3);
  expect_gradients_equal(*run.sharded, reference.gradients[0]);
}

/// Whatever is kept is memory: slots hold shards between all calls.
RANK_CASE(Behaviour_B7, slots_hold_shards_in_every_mode) {
  for (const std::string strategy : {"full_shard", "shard_grad_op"}) {
    Run run(context, ReshardAuto{}, strategy);
    const auto expect_shards = [&] {
      const TensorsByName slots = named_parameters(run.module);
      for (const auto& [name, shard] : run.sharded->parameters()) EXPECT_TRUE(slots.at(name).is_same(shard)) << name;
    };
    const at::Tensor loss = run.loss();
    EXPECT_EQ(run.whole() > 0, strategy == "shard_grad_op");
    expect_shards();
    loss.backward();
    EXPECT_EQ(run.whole(), 0);
    expect_shards();  // B8
    run.unshard("a");
    EXPECT_GT(run.whole(), 0);
    expect_shards();
  }
}

/// Each rank keeps half of the whole for its neighbour and itself, and slots show a quarter.
RANK_CASE_ON(Behaviour_B7, slots_hold_shards_beside_the_share_of_a_block, 4) {
  Run run(context, int64_t{2});
  const at::Tensor loss = run.loss();
  const TensorsByName slots = named_parameters(run.module);
  for (const auto& [name, shard] : run.sharded->parameters()) EXPECT_TRUE(slots.at(name).is_same(shard)) << name;
  EXPECT_EQ(run.whole(), run.sharded->statistics().shard_bytes * 4 / 2);
  loss.backward();
  EXPECT_EQ(run.whole(), 0);
}

RANK_CASE_ON(Behaviour_B2, a_block_trains_like_unsharded, 4) {
  const Recipe recipe = odd_recipe(3);
  for (const std::string model : {"ThreeLayers", "Nested"}) {
    const Reference reference = train_unsharded(load(context, model), recipe, context.world());
    Sharding sharding = units_of({"Outer", "Layer"});
    if (model == "ThreeLayers") sharding.classes = {"Layer"};
    sharding.reshard = int64_t{2};
    for (const int64_t ahead : {0, 1, 3}) {
      sharding.prefetch = {ahead, ahead};
      for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
        SCOPED_TRACE(model + ", " + std::string(name_of(layout)) + ", ahead " + std::to_string(ahead));
        sharding.layout = layout;
        expect_trains_like(context, load(context, model), sharding, recipe, reference);
      }
    }
  }
}

/// What is kept has the compute dtype, and gathers only move bits: those of a run that gathers from shards.
RANK_CASE_ON(Behaviour_B2, a_block_in_low_precision, 4) {
  std::vector<TensorsByName> gradients;
  for (const ReshardAfterForward reshard : {ReshardAfterForward(true), ReshardAfterForward(int64_t{2})}) {
    auto module = load(context, "ThreeLayers");
    Sharding sharding = units_of({"Layer"});
    sharding.reshard = reshard;
    sharding.precision.param = DType::kBFloat16;
    const auto sharded = shard(context, module, sharding);
    const at::Tensor loss = mean_square(module.forward({odd_input(0, context.rank())}));
    const Statistics statistics = sharded->statistics();
    const bool is_block = gradients.size() == 1;
    EXPECT_EQ(statistics.unsharded_bytes, is_block ? statistics.shard_bytes * 4 / 2 / 2 : 0) << "of two bytes for four";
    loss.backward();
    gradients.emplace_back();
    for (const auto& [name, shard] : sharded->parameters()) gradients.back()[name] = shard.grad();
  }
  for (const auto& [name, gradient] : gradients[0]) EXPECT_TRUE(gradient.equal(gradients[1].at(name))) << name;
}

/// By hand, by the setter, and where shards are written between forward and backward.
RANK_CASE_ON(Behaviour_B5, a_block_between_forward_and_backward, 4) {
  auto plain = load(context, "ThreeLayers");
  const auto expect_gradients = [&](const Run& run, double factor) {
    TensorsByName gradients;
    for (const auto& [name, tensor] : named_parameters(plain)) tensor.mutable_grad() = at::Tensor();
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      const at::Tensor loss = mean_square(plain.forward({odd_input(0, rank)})) / 4;
      for (const at::Tensor& tensor : plain.parameters()) tensor.variable_data().mul_(factor);
      loss.backward();
      for (const at::Tensor& tensor : plain.parameters()) tensor.variable_data().mul_(1 / factor);
    }
    for (const auto& [name, tensor] : named_parameters(plain)) gradients[name] = tensor.grad();
    expect_gradients_equal(*run.sharded, gradients);
  };
  const auto ranks_of_gathers = [](Run& run) {
    std::vector<int64_t> ranks;
    for (const CollectiveRecord& record : run.communicator->records()) {
      if (record.kind == Collective::kAllGather) ranks.push_back(record.ranks);
    }
    run.communicator->forget();
    return ranks;
  };
  const std::vector<int64_t> by_all(3, 4);
  const std::vector<int64_t> in_blocks(3, 2);
  Run run(context, int64_t{2});
  const auto step = [&](const std::function<void()>& between, const std::vector<int64_t>& wanted, double factor = 1) {
    run.sharded->zero_gradients();
    const at::Tensor loss = run.loss();
    EXPECT_EQ(ranks_of_gathers(run), by_all);
    between();
    loss.backward();
    EXPECT_EQ(ranks_of_gathers(run), wanted);
    EXPECT_EQ(run.whole(), 0);
    expect_gradients(run, factor);
  };
  step([&] { run.sharded->reshard("", /*recurse=*/true); }, by_all);
  step(
      [&] {
        run.unshard("", /*recurse=*/true);
        EXPECT_EQ(ranks_of_gathers(run), in_blocks);
        EXPECT_EQ(run.whole(), run.sharded->statistics().shard_bytes * 4);
      },
      {});
  step(
      [&] {
        const at::NoGradGuard no_grad;
        for (const auto& [name, shard] : run.sharded->parameters()) at::Tensor(shard).mul_(0.5);
      },
      by_all, 0.5);
  EXPECT_EQ(run.sharded->statistics().stale_gathers, 3);
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, shard] : run.sharded->parameters()) at::Tensor(shard).mul_(2);
  }
  // B6: from the next forward on; true means shards, whatever the number was.
  step([&] { run.sharded->set_reshard_after_forward("", /*recurse=*/true, true); }, in_blocks);
  step([] {}, by_all);
  EXPECT_EQ(run.sharded->statistics().planned_peak_bytes, peak_unsharded_bytes(run.sharded->plan()));
}

/// Before any forward; the forward then has nothing to gather, and what is written in between is seen.
RANK_CASE_ON(Behaviour_B9, unshard_before_any_forward, 1, 2) {
  const bool alone = context.world() == 1;
  Run run(context);
  auto plain = load(context, "ThreeLayers");
  const at::NoGradGuard no_grad;
  const auto expect_plain = [&] {
    const at::Tensor own = run.module.forward({odd_input(0, 0)}).toTensor();
    EXPECT_TRUE(at::allclose(own, plain.forward({odd_input(0, 0)}).toTensor()));
  };
  run.unshard("", /*recurse=*/true);
  run.unshard("a");  // whole already
  EXPECT_EQ(run.gathers(), alone ? 0 : 3);
  expect_plain();
  EXPECT_EQ(run.gathers(), 0);
  EXPECT_EQ(run.whole(), 0) << "resharded after that forward";
  // Started, waited for twice, or by the forward that needs it.
  const auto started = run.sharded->start_unshard("b", false);
  run.sharded->start_unshard("c", false);
  run.sharded->start_unshard("c", false);
  for (int time = 0; time < 2; ++time) started.front().lock()->finish_unshard();
  EXPECT_EQ(run.gathers(), alone ? 0 : 2);
  expect_plain();
  EXPECT_EQ(run.gathers(), alone ? 0 : 1) << "layer a";
  // Written while whole, and while a gather is on its way.
  run.unshard("a");
  run.sharded->start_unshard("b", false);
  for (const auto& [name, shard] : run.sharded->parameters()) at::Tensor(shard).mul_(0.5);
  for (const at::Tensor& tensor : plain.parameters()) at::Tensor(tensor).mul_(0.5);
  expect_plain();
}

/// A unit of the root's alone, which has no parameters, and units by the module around them.
RANK_CASE(Behaviour_B10, units_without_parameters_and_paths) {
  Run run(context);
  run.unshard("");
  EXPECT_EQ(run.gathers(), 0);
  EXPECT_EQ(refusal([&] { run.unshard("aa"); }, ErrorCode::kNotFound).find("no unit `aa`; did you mean"), 0U);
  EXPECT_EQ(refusal([&] { run.sharded->reshard("a.up", true); }, ErrorCode::kNotFound).find("no unit `a.up`"), 0U);
  run.sharded->begin_local_use();
  EXPECT_NE(refusal([&] { run.unshard("a"); }, ErrorCode::kFailedPrecondition).find("release them first"),
            std::string::npos);
  run.sharded->end_local_use(false);
  // In flight when the engine lets go of everything.
  run.sharded->start_unshard("a", false);
  run.sharded->detach();
  EXPECT_NE(refusal([&] { run.unshard("a"); }, ErrorCode::kFailedPrecondition).find("detached"), std::string::npos);
}

/// Gathered ahead by hand before every forward, in the order of the layers.
RANK_CASE(Behaviour_B11, unshard_ahead_trains_like_unsharded) {
  Recipe recipe = odd_recipe(10);
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), recipe, context.world());
  Run run(context);
  const auto optimizer = make_optimizer(recipe.optimizer, tensors_of(*run.sharded), recipe.rate);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    optimizer->zero_grad();
    run.sharded->start_unshard("a", false);
    run.sharded->start_unshard("b", false);
    EXPECT_EQ(run.gathers(), 2);
    const at::Tensor loss = run.loss(step);
    EXPECT_EQ(run.gathers(), 1);
    EXPECT_NEAR(loss.item<double>(), reference.losses[static_cast<size_t>(step)][static_cast<size_t>(context.rank())],
                2e-5);
    loss.backward();
    run.gathers();
    optimizer->step();
  }
  expect_shards_equal(*run.sharded, reference.parameters, 1e-5);
}

/// Of the unit that is needed last, in forward and in backward.
RANK_CASE(Behaviour_C10, unshard_of_the_wrong_unit_ahead) {
  const Recipe recipe = odd_recipe(3);
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), recipe, context.world());
  Run run(context);
  const auto optimizer = make_optimizer(recipe.optimizer, tensors_of(*run.sharded), recipe.rate);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    optimizer->zero_grad();
    run.sharded->start_unshard("c", false);
    const at::Tensor loss = run.loss(step);
    run.sharded->start_unshard("a", false);
    loss.backward();
    EXPECT_EQ(run.whole(), 0);
    optimizer->step();
  }
  expect_shards_equal(*run.sharded, reference.parameters, 1e-5);
}

RANK_CASE(Behaviour_B5, reshard_inside_a_forward_or_backward_is_refused) {
  Run run(context);
  const auto inside = [&](const std::string& path) {
    return refusal([&] { run.sharded->reshard(path, false); }, ErrorCode::kFailedPrecondition);
  };
  std::vector<std::string> seen;
  const at::Tensor x = odd_input(0, context.rank()).requires_grad_();
  const at::Tensor y = run.module.forward({x}).toTensor();
  // Runs between the backward of layer c and that of layer b: c is done, b not begun, the root in between.
  run.communicator->before([&](Collective kind, size_t) {
    if (kind == Collective::kAllGather) seen.push_back(inside(""));
  });
  mean_square(y).backward();
  run.communicator->before({});
  ASSERT_FALSE(seen.empty());
  EXPECT_NE(seen.back().find("reshard() of the root unit inside its own backward"), std::string::npos) << seen.back();
  run.sharded->reshard("", true);
}

/// Kept from backward to the next forward where nothing was written in between.
RANK_CASE(Behaviour_B8, setter_of_reshard_after_backward) {
  Run run(context, ReshardAuto{}, "shard_grad_op");
  run.sharded->set_reshard_after_backward("", /*recurse=*/true, false);
  run.loss().backward();
  EXPECT_EQ(run.gathers(), 3);
  EXPECT_GT(run.whole(), 0);
  run.sharded->set_reshard_after_backward("", /*recurse=*/true, true);
  run.loss().backward();
  EXPECT_EQ(run.whole(), 0);
}

RANK_CASE_ON(Behaviour_B13, world_of_one_communicates_nothing, 1) {
  for (const std::string strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
    Run run(context, ReshardAuto{}, strategy);
    run.loss().backward();
    EXPECT_TRUE(run.communicator->records().empty());
  }
  expect_odd_trains(context, "ThreeLayers", {"Layer"}, odd_recipe(10));
}

RANK_CASE(Behaviour_B15, forward_without_inputs) {
  Recipe recipe;
  recipe.loss = [](jit::Module& module, int64_t, int64_t) { return mean_square(module.forward({})); };
  expect_odd_trains(context, "Square", {}, recipe);
}

/// After a step of the root, one of its units is trained alone.
RANK_CASE(Behaviour_B16, a_unit_alone_after_the_root) {
  Recipe recipe = odd_recipe(4);
  recipe.loss = [](jit::Module& module, int64_t step, int64_t rank) {
    if (step % 2 == 0) return mean_square(module.forward({odd_input(step, rank)}));
    return mean_square(module.attr("b").toModule().forward({odd_input(step, rank)}));
  };
  recipe.optimizer = Optimizer::kSgd;
  expect_odd_trains(context, "ThreeLayers", {"Layer"}, recipe);
}

/// PyTorch refuses it; here the root has nothing to do with a unit that is called first.
RANK_CASE(Behaviour_A21, a_unit_alone_before_the_root) {
  Recipe recipe = odd_recipe(4);
  recipe.loss = [](jit::Module& module, int64_t step, int64_t rank) {
    if (step % 2 == 1) return mean_square(module.forward({odd_input(step, rank)}));
    return mean_square(module.attr("b").toModule().forward({odd_input(step, rank)}));
  };
  recipe.optimizer = Optimizer::kSgd;
  expect_odd_trains(context, "ThreeLayers", {"Layer"}, recipe);
}

/// Gathers and frees as usual, and the step after it is that of a run without it.
RANK_CASE(Behaviour_B18, no_grad_forwards_between_steps) {
  Run run(context);
  {
    const at::NoGradGuard no_grad;
    for (int time = 0; time < 2; ++time) {
      run.loss();
      EXPECT_EQ(run.gathers(), 3);
      EXPECT_EQ(run.whole(), 0);
    }
  }
  Recipe recipe = odd_recipe(3);  // B19
  recipe.loss = [](jit::Module& module, int64_t step, int64_t rank) {
    {
      const at::NoGradGuard no_grad;
      module.forward({odd_input(step + 7, rank)});
    }
    return mean_square(module.forward({odd_input(step, rank)}));
  };
  expect_odd_trains(context, "ThreeLayers", {"Layer"}, recipe);
}

}  // namespace
}  // namespace fsdp2::testing
