// Tensors of a host that writes its forward in C++: sharded in place, whole between enter and exit.
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>

#include "plugin/sharded_tensors.hpp"
#include "plugin/wrap/planner.hpp"
#include "registry/error.hpp"
#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/harness/training.hpp"

namespace fsdp2::testing {
namespace {

constexpr int64_t kWidth = 12;

constexpr std::array<int64_t, 1> kAllWritten{0};

/// No view of another tensor.
at::Tensor weights(at::IntArrayRef shape, int64_t s) {
  return fill(shape, s).clone().requires_grad_();
}

/// A host's model: an embedding whose weight is the head's too, three blocks, one of them frozen.
struct HostModel {
  at::Tensor table = weights({31, kWidth}, 1);
  struct Block {
    at::Tensor up = weights({20, kWidth}, 2);
    at::Tensor up_bias = weights({20}, 3);
    at::Tensor down = weights({kWidth, 20}, 4);
    // Operators that keep the weight itself for backward, where linear keeps a view of it.
    at::Tensor norm = (weights({kWidth}, 5).detach() + 1).requires_grad_();
    at::Tensor norm_bias = weights({kWidth}, 6);
    at::Tensor scale = weights({kWidth}, 7);
    at::Tensor kernel = weights({kWidth, 1, 3}, 8);
  };
  std::vector<Block> blocks{Block{}, Block{}, Block{}};

  HostModel() { blocks[1].up.set_requires_grad(false); }

  [[nodiscard]] std::vector<NamedTensor> parameters() const {
    std::vector<NamedTensor> result{{"embedding.weight", table}};
    for (size_t b = 0; b < blocks.size(); ++b) {
      const std::string path = "blocks." + std::to_string(b);
      result.push_back({path + ".up.weight", blocks[b].up});
      result.push_back({path + ".up.bias", blocks[b].up_bias});
      result.push_back({path + ".down.weight", blocks[b].down});
      result.push_back({path + ".norm.weight", blocks[b].norm});
      result.push_back({path + ".norm.bias", blocks[b].norm_bias});
      result.push_back({path + ".scale", blocks[b].scale});
      result.push_back({path + ".convolution.weight", blocks[b].kernel});
    }
    result.push_back({"head.weight", table});
    return result;
  }

  /// `engine` is null for the plain model.
  at::Tensor loss(ShardedTensors* engine, int64_t step, int64_t rank) const {
    const at::Tensor ids = token_ids(step, rank, 3, 8, 31);
    const auto around = [&](const std::string& path, at::Tensor x, const auto& forward) {
      const auto call = engine != nullptr ? engine->enter(path) : c10::intrusive_ptr<UnitCall>();
      if (!call) return forward(x);
      const auto inputs = call->begin(c10::ivalue::Tuple::create(std::vector<c10::IValue>{x}), kAllWritten);
      const at::Tensor y = forward(inputs.toTupleRef().elements()[0].toTensor());
      return call->end(c10::ivalue::Tuple::create(std::vector<c10::IValue>{y})).toTupleRef().elements()[0].toTensor();
    };
    return around("", ids, [&](const at::Tensor& tokens) {
      at::Tensor x = at::embedding(table, tokens);
      for (size_t b = 0; b < blocks.size(); ++b) {
        x = around("blocks." + std::to_string(b), x, [&](const at::Tensor& h) {
          const Block& block = blocks[b];
          const at::Tensor n = at::layer_norm(h, {kWidth}, block.norm, block.norm_bias);
          const at::Tensor mixed = at::conv1d(n.transpose(1, 2), block.kernel, {}, 1, 1, 1, kWidth).transpose(1, 2);
          return h + block.scale * at::linear(at::tanh(at::linear(mixed, block.up, block.up_bias)), block.down);
        });
      }
      const at::Tensor logits = at::linear(x, table);
      return at::cross_entropy_loss(logits.slice(1, 0, -1).reshape({-1, 31}), ids.slice(1, 1).reshape({-1}));
    });
  }
};

at::Tensor inference_tensor() {
  const c10::InferenceMode mode;
  return at::ones({2, 2});
}

std::vector<at::Tensor> tensors(const HostModel& model) {
  std::vector<at::Tensor> result;
  for (const auto& [name, tensor] : model.parameters())
    if (name != "head.weight") result.push_back(tensor);
  return result;
}

int64_t elements(const HostModel& model) {
  int64_t result = 0;
  for (const at::Tensor& tensor : tensors(model)) result += tensor.numel();
  return result;
}

std::unique_ptr<ShardedTensors> shard_host(RankContext& context, const HostModel& model, const std::string& strategy,
                                           std::vector<LogLine>* log = nullptr) {
  Sharding sharding;
  sharding.strategy = strategy;
  sharding.modules = {"blocks.*"};
  const auto parameters = model.parameters();
  return ShardedTensors::shard(
      parameters, context.new_communicator(),
      [&](const ModuleTree& tree, int64_t world) { return plan_for(tree, sharding, world); },
      [log](bool warning, const std::string& text) {
        if (log != nullptr) log->push_back({warning, text});
      });
}

/// Losses and parameters of a plain run on all ranks' batches.
void trains_like_the_plain_model(RankContext& context, const std::string& strategy, Optimizer kind) {
  SCOPED_TRACE(strategy);
  const HostModel plain;
  const auto plain_optimizer = make_optimizer(kind, tensors(plain), 0.05);
  const HostModel model;
  // Made before sharding, with the host's own tensors.
  const auto optimizer = make_optimizer(kind, tensors(model), 0.05);
  std::vector<LogLine> log;
  const auto engine = shard_host(context, model, strategy, &log);
  EXPECT_TRUE(log.empty()) << log.front().text;
  const auto mine = static_cast<size_t>(context.rank());
  for (int64_t step = 0; step < 4; ++step) {
    plain_optimizer->zero_grad();
    std::vector<double> losses;
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      const at::Tensor loss = plain.loss(nullptr, step, rank);
      (loss / static_cast<double>(context.world())).backward();
      losses.push_back(loss.item<double>());
    }
    plain_optimizer->step();
    optimizer->zero_grad();
    const at::Tensor loss = model.loss(engine.get(), step, context.rank());
    EXPECT_NEAR(loss.item<double>(), losses[mine], 2e-5) << "step " << step;
    loss.backward();
    if (engine->plan().mesh.shard > 1) {
      EXPECT_EQ(engine->statistics().unsharded_bytes, 0) << "whole parameters are left after backward";
      EXPECT_LT(elements(model), elements(plain)) << "the host's tensors are not shards at rest";
    }
    EXPECT_FALSE(model.blocks[1].up.grad().defined()) << "a frozen parameter has a gradient";
    optimizer->step();
    {
      const at::NoGradGuard no_grad;  // a validation; what it leaves behind must not go stale
      EXPECT_NEAR(model.loss(engine.get(), step + 50, 0).item<double>(),
                  plain.loss(nullptr, step + 50, 0).item<double>(), 2e-5);
    }
  }
  engine->detach();
  const auto wanted = plain.parameters();
  const auto trained = model.parameters();
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(trained[i].tensor.sizes(), wanted[i].tensor.sizes()) << wanted[i].name;
    EXPECT_TRUE(at::allclose(trained[i].tensor, wanted[i].tensor, 0, 1e-5)) << wanted[i].name;
    EXPECT_EQ(trained[i].tensor.requires_grad(), wanted[i].tensor.requires_grad());
  }
  EXPECT_NEAR(model.loss(nullptr, 99, 0).item<double>(), plain.loss(nullptr, 99, 0).item<double>(), 2e-5);
}

RANK_CASE_ON(HostTensors, train_like_the_plain_model, 1, 2, 4) {
  for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"})
    trains_like_the_plain_model(context, strategy, Optimizer::kMomentum);
  trains_like_the_plain_model(context, "full_shard", Optimizer::kAdamW);
}

/// This rank's parts of the plain model's gradients.
void expect_gradients_of(const HostModel& plain, const ShardedTensors& engine) {
  for (const ShardGeometry& part : engine.geometry()) {
    for (const auto& [name, tensor] : plain.parameters()) {
      if (name != part.name || !tensor.requires_grad()) continue;
      const at::Tensor wanted = tensor.grad().view(-1).slice(0, part.range.begin, part.range.end);
      ASSERT_EQ(part.shard.grad().sizes(), part.shard.sizes()) << name;
      EXPECT_TRUE(at::allclose(part.shard.grad().view(-1), wanted, 1e-4, 1e-6)) << name;
    }
  }
}

RANK_CASE(HostTensors, accumulate_and_run_a_unit_twice) {
  const HostModel plain;
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  const auto twice = [](const HostModel& m, ShardedTensors* e, int64_t step, int64_t rank) {
    return m.loss(e, step, rank) + m.loss(e, step + 1, rank);
  };
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t rank = 0; rank < context.world(); ++rank)
      (twice(plain, nullptr, 10 * batch, rank) / static_cast<double>(context.world())).backward();
    twice(model, engine.get(), 10 * batch, context.rank()).backward();
  }
  expect_gradients_of(plain, *engine);
}

/// The root's sum ends in the next backward, while the host's tensors show the root whole.
RANK_CASE_ON(HostTensors, sums_of_a_pass_that_is_not_the_last, 1, 2, 4) {
  const HostModel plain;
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  for (int64_t batch = 0; batch < 3; ++batch) {
    for (int64_t rank = 0; rank < context.world(); ++rank)
      (plain.loss(nullptr, batch, rank) / static_cast<double>(context.world())).backward();
    engine->set_last_backward(batch == 2);
    model.loss(engine.get(), batch, context.rank()).backward();
  }
  expect_gradients_of(plain, *engine);
}

RANK_CASE(HostTensors, local_use_is_plain_and_writes_back) {
  const HostModel plain;
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  engine->begin_local_use();
  EXPECT_TRUE(at::equal(model.blocks[0].up, plain.blocks[0].up));
  EXPECT_FALSE(model.blocks[0].up.requires_grad());
  if (context.rank() == 0) {
    EXPECT_FLOAT_EQ(model.loss(engine.get(), 3, 0).item<float>(), plain.loss(nullptr, 3, 0).item<float>());
  }
  model.blocks[0].up.zero_();
  engine->end_local_use(/*write_back=*/true);
  EXPECT_TRUE(model.blocks[0].up.requires_grad());
  {
    const at::NoGradGuard no_grad;
    plain.blocks[0].up.zero_();
  }
  EXPECT_NEAR(model.loss(engine.get(), 3, 0).item<double>(), plain.loss(nullptr, 3, 0).item<double>(), 1e-6);
}

/// What a unit does to its input in place is part of its backward.
RANK_CASE(HostTensors, an_input_changed_in_place_trains) {
  const at::Tensor start = weights({5, 4}, 1);
  const at::Tensor plain_start = start.detach().clone().requires_grad_();
  const std::vector<NamedTensor> parameters{{"position.weight", weights({5, 4}, 2)}};
  const at::Tensor plain = weights({5, 4}, 2);
  Sharding sharding;
  sharding.modules = {"position"};
  const auto engine = ShardedTensors::shard(
      parameters, context.new_communicator(),
      [&](const ModuleTree& tree, int64_t world) { return plan_for(tree, sharding, world); }, nullptr);
  const auto loss = [](const at::Tensor& x) { return (x * x).sum(); };
  const auto call = engine->enter("position");
  const at::Tensor given = start * 2;
  auto inputs = call->begin(c10::ivalue::Tuple::create(std::vector<c10::IValue>{given}), kAllWritten);
  at::Tensor inside = inputs.toTupleRef().elements()[0].toTensor();
  inside.add_(parameters[0].tensor);
  const auto outputs = call->end(c10::ivalue::Tuple::create(std::vector<c10::IValue>{inside}));
  loss(outputs.toTupleRef().elements()[0].toTensor()).backward();
  loss((plain_start * 2).add_(plain)).backward();
  EXPECT_TRUE(at::allclose(start.grad(), plain_start.grad()));
  const auto part = engine->geometry().front();
  ASSERT_TRUE(part.shard.grad().defined());
  EXPECT_TRUE(
      at::allclose(part.shard.grad().view(-1), plain.grad().view(-1).slice(0, part.range.begin, part.range.end)));
}

RANK_CASE(HostTensors, backward_before_exit_is_refused) {
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  {
    const auto root = engine->enter("");
    root->begin(c10::ivalue::Tuple::create(std::vector<c10::IValue>{}), {});
    try {
      at::embedding(model.table, at::arange(4, at::kLong)).sum().backward();
      ADD_FAILURE() << "nothing would be reduced";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("the root unit: backward before exit()"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_FALSE(model.table.grad().defined());
  model.loss(engine.get(), 1, context.rank()).backward();  // goes on
  EXPECT_TRUE(model.table.grad().defined());
}

/// As torch::load does it: other memory under the same tensor.
RANK_CASE(HostTensors, memory_given_while_whole_is_taken_or_refused) {
  const HostModel plain;
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  engine->begin_local_use();
  at::Tensor down = model.blocks[2].down;
  down.set_data(at::ones({3}));
  EXPECT_THROW(engine->end_local_use(/*write_back=*/true), Error) << "another shape";
  down.set_data(at::full({kWidth, 20}, 0.25));
  engine->end_local_use(/*write_back=*/true);
  engine->begin_local_use();
  EXPECT_TRUE(at::equal(down, at::full({kWidth, 20}, 0.25)));
  down.set_data(at::ones({kWidth, 20}));
  engine->end_local_use(/*write_back=*/false);
  {
    const at::NoGradGuard no_grad;
    plain.blocks[2].down.fill_(0.25);
  }
  const at::Tensor loss = model.loss(engine.get(), 3, 0);
  EXPECT_NEAR(loss.item<double>(), plain.loss(nullptr, 3, 0).item<double>(), 1e-5);
  loss.backward();
}

RANK_CASE(HostTensors, geometry_is_that_of_shards_while_whole) {
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  std::vector<ShardRange> at_rest;
  for (const ShardGeometry& part : engine->geometry()) at_rest.push_back(part.range);
  const auto root = engine->enter("");
  const auto parts = engine->geometry();
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].range, at_rest[i]) << parts[i].name;
}

RANK_CASE(HostTensors, sharded_twice_is_refused) {
  const HostModel model;
  auto engine = shard_host(context, model, "full_shard");
  const auto again = [&]() -> std::string {
    try {
      shard_host(context, model, "full_shard");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(again().find("is sharded already"), std::string::npos);
  engine->detach();
  EXPECT_EQ(again(), "no error");  // and that engine ends without a detach
  EXPECT_NE(again().find("is sharded already"), std::string::npos);
}

RANK_CASE(HostTensors, a_forward_that_throws_leaves_the_unit_at_rest) {
  const HostModel plain;
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  EXPECT_THROW(
      {
        const auto root = engine->enter("");
        const auto block = engine->enter("blocks.1");
        at::linear(at::ones({2, 5}), model.blocks[1].up);
      },
      std::exception);
  EXPECT_LT(elements(model), elements(plain));
  EXPECT_NEAR(model.loss(engine.get(), 1, 0).item<double>(), plain.loss(nullptr, 1, 0).item<double>(), 1e-5);
}

RANK_CASE(HostTensors, a_forward_that_changes_its_parameter_is_refused) {
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  const at::NoGradGuard no_grad;
  const auto root = engine->enter("");
  const auto inputs = c10::ivalue::Tuple::create(std::vector<c10::IValue>{});
  root->begin(inputs, {});
  model.table.mul_(2);
  try {
    root->end(inputs);
    ADD_FAILURE() << "the change would be lost without a word";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("embedding.weight"), std::string::npos) << error.what();
  }
}

RANK_CASE(HostTensors, what_cannot_be_sharded_is_refused_by_name) {
  const at::Tensor good = weights({4, 4}, 1);
  const at::Tensor same_memory = at::empty({0}).set_(good.detach());
  const std::vector<std::pair<std::vector<NamedTensor>, std::string>> cases{
      {{}, "no parameters"},
      {{{"a.weight", good}, {"a.weight", weights({2}, 1)}}, "`a.weight` is given twice"},
      {{{"a..weight", good}}, "no valid name"},
      {{{"a.weight", at::Tensor()}}, "`a.weight` is not defined"},
      {{{"a.weight", good * 2}}, "`a.weight` is not a leaf"},
      {{{"a.weight", fill({4, 6}, 1).t()}}, "`a.weight` is not contiguous"},
      {{{"a.weight", fill({4, 6}, 1).view({6, 4})}}, "`a.weight` is a view of another tensor"},
      {{{"a.weight", inference_tensor()}}, "`a.weight` is an inference tensor"},
      {{{"a.scale", at::ones({})}}, "`a.scale` has no dimensions"},
      {{{"a.weight", good}, {"b.weight", same_memory}}, "`b.weight` shares its memory with `a.weight`"},
  };
  for (const auto& [parameters, wanted] : cases) {
    try {
      ShardedTensors::shard(
          parameters, context.new_communicator(),
          [](const ModuleTree& tree, int64_t world) { return plan_for(tree, {}, world); }, nullptr);
      ADD_FAILURE() << "not refused: " << wanted;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
  }
  const HostModel model;
  const auto engine = shard_host(context, model, "full_shard");
  try {
    engine->enter("block.1");
    ADD_FAILURE() << "an unknown path was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.details().nearest, "blocks.1") << error.what();
  }
  EXPECT_FALSE(engine->enter("blocks.1.up")) << "a module that is no unit is passed through";
}

}  // namespace
}  // namespace fsdp2::testing
