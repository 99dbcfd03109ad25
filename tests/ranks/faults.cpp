// Faults of hosts and models: what is refused, what is said, and that the engine is good afterwards.
#include <gtest/gtest.h>

#include <thread>

#include "registry/error.hpp"
#include "tests/ranks/harness/refusal.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

constexpr double kNoLimit = 1e9;

Loss with_limit(double limit) {
  return [limit](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.forward({odd_input(step, rank), limit}));
  };
}

/// A script error in every rank's forward, then a clean step.
void error_in_forward(RankContext& context, const std::string& model, const std::vector<std::string>& classes) {
  Recipe recipe = odd_recipe(1);
  recipe.loss = with_limit(kNoLimit);
  const Reference reference = train_unsharded(load(context, model), recipe, context.world());
  for (const Sharding& sharding : every_strategy(units_of(classes))) {
    SCOPED_TRACE(model + " " + sharding.strategy);
    auto module = load(context, model);
    const auto sharded = shard(context, module, sharding);
    for (int round = 0; round < 3; ++round) {
      std::string text;
      try {
        with_limit(0.0)(module, 0, context.rank());
      } catch (const std::exception& error) {
        text = error.what();
      }
      EXPECT_NE(text.find("activation above the limit"), std::string::npos) << text;
      for (const at::Tensor& parameter : module.parameters())
        EXPECT_TRUE(std::isfinite(parameter.sum().item<double>()));
      for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
      const at::Tensor loss = with_limit(kNoLimit)(module, 0, context.rank());
      EXPECT_NEAR(loss.item<double>(), reference.losses[0][static_cast<size_t>(context.rank())], 2e-5);
      loss.backward();
      expect_gradients_equal(*sharded, reference.gradients[0]);
      if (sharding.strategy != "no_shard") {
        EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
      }
    }
    sharded->detach();
  }
}

RANK_CASE(Faults, error_between_units) {
  error_in_forward(context, "MayRaise", {"Layer"});
}
RANK_CASE(Faults, error_inside_a_unit) {
  error_in_forward(context, "UnitMayRaise", {"Layer", "RaisesInside"});
  error_in_forward(context, "UnitMayRaise", {"RaisesInside"});
}

/// LibTorch's own error, from a shape that does not fit.
RANK_CASE(Faults, error_of_an_operator) {
  auto module = load(context, "ThreeLayers");
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  const auto sharded = shard(context, module, units_of({"Layer"}));
  for (int round = 0; round < 3; ++round) {
    EXPECT_ANY_THROW(module.forward({at::ones({2, 5})}));
    for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
    mean_square(module.forward({odd_input(0, context.rank())})).backward();
    expect_gradients_equal(*sharded, reference.gradients[0]);
  }
}

/// A hook of the host throws in the middle of every rank's backward.
RANK_CASE(Faults, error_in_backward) {
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  for (const Sharding& sharding : every_strategy(units_of({"Layer"}))) {
    SCOPED_TRACE(sharding.strategy);
    auto module = load(context, "ThreeLayers");
    const auto sharded = shard(context, module, sharding);
    for (int round = 0; round < 3; ++round) {
      const at::Tensor x = odd_input(0, context.rank()).requires_grad_(true);
      const at::Tensor between = x * 1.0;
      between.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("host fault"); });
      EXPECT_THROW(mean_square(module.forward({between})).backward(), std::exception);
      for (const at::Tensor& parameter : module.parameters())
        EXPECT_TRUE(std::isfinite(parameter.sum().item<double>()));
      for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
      mean_square(module.forward({odd_input(0, context.rank())})).backward();
      expect_gradients_equal(*sharded, reference.gradients[0]);
    }
  }
}

/// Backward through the first of three units throws at its output: the other two had been reduced.
RANK_CASE(Faults, error_in_the_middle_of_backward) {
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  const auto forward = [&](bool throws) {
    at::Tensor h = module.attr("a").toModule().forward({odd_input(0, context.rank())}).toTensor();
    if (throws) h.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("host fault"); });
    h = module.attr("b").toModule().forward({h}).toTensor();
    return mean_square(module.attr("c").toModule().forward({h}));
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_THROW(forward(true).backward(), std::exception);
    for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
    forward(false).backward();
    expect_gradients_equal(*sharded, reference.gradients[0]);
    EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
  }
}

/// The change would be lost with the gathered copy.
RANK_CASE(Faults, unit_that_changes_its_own_parameter) {
  const at::Tensor x = odd_input(0, context.rank());
  for (const bool grad : {true, false}) {
    const at::AutoGradMode mode(grad);
    auto module = load(context, "ClipsItself");
    const auto sharded = shard(context, module, units_of({"Layer"}));
    try {
      module.forward({x});
      ADD_FAILURE() << "no error";
    } catch (const std::exception& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("`table`"), std::string::npos) << text;
      EXPECT_NE(text.find("in place"), std::string::npos) << text;
    }
    EXPECT_ANY_THROW(module.forward({x}));  // the table is kept, but what was refused is not
    sharded->detach();
    const auto values = named_parameters(load(context, "ClipsItself"));
    for (const auto& [name, tensor] : named_parameters(module)) EXPECT_TRUE(tensor.equal(values.at(name))) << name;
    EXPECT_NO_THROW(module.forward({x}));
  }
}

/// A validation that only one rank runs: an error after the time, which says where the others are.
RANK_CASE_ON(Faults, a_forward_on_one_rank_only, 2, 4) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}), context.new_communicator(1));
  if (context.rank() == 0) {
    const std::string text = text_of_fault([&] { module.forward({odd_input(0, 0)}); });
    EXPECT_NE(text.find("rank 0: all_gather of "), std::string::npos) << text;
    for (int64_t rank = 1; rank < context.world(); ++rank) {
      EXPECT_NE(text.find("rank " + std::to_string(rank) + " left no word"), std::string::npos) << text;
    }
  }
  context.barrier();
}

/// Sizes differ where the ranks meet: Gloo's own thread must not end the process.
RANK_CASE(Faults, one_rank_runs_one_forward_more) {
  auto module = load(context, "lm");
  const auto sharded = shard(context, module, units_of({"Block"}), context.new_communicator(2));
  const std::string text = text_of_fault([&] {
    const auto ids = at::arange(32, at::kLong).reshape({2, 16});
    if (context.rank() == 0) module.forward({ids});
    module.forward({ids}).toTensor().sum().backward();
  });
  EXPECT_NE(text.find("unit"), std::string::npos) << text;
  EXPECT_NE(text.find("rank " + std::to_string(context.rank())), std::string::npos) << text;
}

/// In the middle of a forward, and in turns: the first is an error, the second is not.
RANK_CASE(Faults, two_threads) {
  auto module = load(context, "ThreeLayers");
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, units_of({"Layer"}), communicator);
  const auto forward = [&] { mean_square(module.forward({odd_input(0, context.rank())})).backward(); };
  std::string text;
  communicator->before([&](Collective, size_t) {
    if (text.empty()) std::thread([&] { text = text_of_fault(forward); }).join();
  });
  forward();
  EXPECT_NE(text.find("another thread"), std::string::npos) << text;
  communicator->before(nullptr);
  std::string good;
  std::thread([&] { good = text_of_fault(forward); }).join();
  EXPECT_EQ(good, "no error");
  forward();
}

/// A gather that fails inside the root's forward gives all memory back; the next step is as good as any.
RANK_CASE(Faults, failed_gather) {
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
    SCOPED_TRACE(name_of(layout));
    Sharding sharding = units_of({"Layer"});
    sharding.reshard = true;
    sharding.layout = layout;
    auto module = load(context, "ThreeLayers");
    auto communicator = context.new_communicator();
    const auto sharded = shard(context, module, sharding, communicator);
    const auto forward = [&] { mean_square(module.forward({odd_input(0, context.rank())})).backward(); };
    communicator->forget();
    communicator->before([](Collective, size_t done) {
      if (done == 1) throw std::runtime_error("no link");
    });
    EXPECT_NE(text_of_fault(forward).find("no link"), std::string::npos);
    EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
    communicator->before(nullptr);
    forward();
    expect_gradients_equal(*sharded, reference.gradients[0]);
  }
}

Plan plan_layers(const ModuleTree& tree, int64_t world) {
  return plan_for(tree, units_of({"Layer"}), world);
}

RANK_CASE(Faults, engine_destroyed_without_detach) {
  auto module = load(context, "ThreeLayers");
  shard(context, module, units_of({"Layer"})).reset();
  const std::string wanted = "destroyed without detach()";
  const auto expect_told = [&](const std::function<void()>& run) {
    const std::string text = text_of_fault(run);
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
  };
  expect_told([&] { module.forward({odd_input(0, 0)}); });
  expect_told([&] { module.save(context.scratch_path("lost" + std::to_string(context.rank()))); });
  expect_told([&] { shard(context, module, units_of({"Layer"})); });
  expect_told([&] { plan_of(module, plan_layers, 2); });
  // One that is loaded anew is another module.
  auto anew = load(context, "ThreeLayers");
  const auto sharded = shard(context, anew, units_of({"Layer"}));
  mean_square(anew.forward({odd_input(0, context.rank())})).backward();
}

RANK_CASE(Faults, detach_when_the_host_has_let_go_of_the_module) {
  std::unique_ptr<ShardedModule> sharded;
  {
    const auto module = load(context, "ThreeLayers");
    sharded = shard(context, module, units_of({"Layer"}));
  }
  EXPECT_EQ(tensors_of(*sharded).size(), 12U);
  sharded->detach();
}

/// The engine still has the shards: the trained weights are not lost.
RANK_CASE(Faults, detach_after_the_host_has_converted_the_module) {
  auto module = load(context, "ThreeLayers");
  const auto values = named_parameters(load(context, "ThreeLayers"));
  const auto sharded = shard(context, module, units_of({"Layer"}));
  module.to(at::kDouble);
  const std::string text = text_of_fault([&] { module.forward({odd_input(0, 0)}); });
  EXPECT_NE(text.find("detach"), std::string::npos) << text;
  sharded->detach();
  for (const auto& [name, tensor] : named_parameters(module)) EXPECT_TRUE(tensor.equal(values.at(name))) << name;
}

RANK_CASE(Faults, empty_and_sharded_modules_have_no_plan) {
  EXPECT_NE(text_of_fault([&] { plan_of(torch::jit::Module(), plan_layers, 2); }).find("empty"), std::string::npos);
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  EXPECT_NE(text_of_fault([&] { plan_of(module, plan_layers, 2); }).find("already sharded"), std::string::npos);
}

RANK_CASE(Faults, second_owner_of_an_original_is_named) {
  auto module = load(context, "ThreeLayers");
  const at::Tensor held = module.attr("b").toModule().attr("up").toModule().attr("weight").toTensor();
  const at::Tensor before = held.detach().clone();
  std::vector<LogLine> log;
  const auto sharded = shard(context, module, units_of({"Layer"}), nullptr, &log);
  bool named = false;
  for (const LogLine& line : log) {
    if (!line.warning) continue;
    named = named || line.text.find("b.up.weight") != std::string::npos;
    EXPECT_EQ(line.text.find("c.up.weight"), std::string::npos) << line.text;
  }
  EXPECT_TRUE(named);
  EXPECT_TRUE(held.equal(before));
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  EXPECT_TRUE(held.equal(before));
}

RANK_CASE(Faults, sole_owners_bring_no_warning) {
  for (const char* model : {"ThreeLayers", "lm_tied", "tied_pair", "OneObjectTwoPaths", "hf_gpt2_tied"}) {
    auto module = load(context, model);
    std::vector<LogLine> log;
    const auto sharded = shard(context, module, {}, nullptr, &log);
    for (const LogLine& line : log) EXPECT_FALSE(line.warning) << model << ": " << line.text;
    EXPECT_GT(sharded->parameters().size(), 0U);
  }
}

/// A copy shares nothing with the original. (Made with gradients on, its parameters are no leaves: their graph would
/// hold the originals, and the warning would be right.)
RANK_CASE(Faults, copies_are_no_second_owner) {
  auto module = load(context, "ThreeLayers");
  const auto twin = [&] {
    const at::NoGradGuard guard;
    return module.deepcopy();
  }();
  std::vector<LogLine> log;
  const auto sharded = shard(context, module, units_of({"Layer"}), nullptr, &log);
  for (const LogLine& line : log) EXPECT_FALSE(line.warning) << line.text;
  EXPECT_EQ(twin.parameters().size(), module.parameters().size());
}

RANK_CASE(Faults, class_that_matches_nothing) {
  auto module = load(context, "ThreeLayers");
  const Refusal refusal = refusal_of([&] { shard(context, module, units_of({"Layr"})); });
  EXPECT_NE(refusal.text.find("Layr"), std::string::npos) << refusal.text;
  EXPECT_NE(refusal.text.find("Layer"), std::string::npos) << refusal.text;
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
}

}  // namespace
}  // namespace fsdp2::testing
