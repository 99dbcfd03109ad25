// Parameters that are frozen, of several dtypes, tiny, empty, read by others, or without any input beside them.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/ranks/harness/refusal.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

Sharding per_parameter(Sharding sharding) {
  sharding.layout = Layout::kPerParameter;
  return sharding;
}

RANK_CASE_ON(Behaviour_H1, frozen, 2, 4) {
  // Weights frozen beside trainable biases, a unit all frozen, a unit all trainable.
  expect_odd_trains(context, "Frozen", {"Layer"});
  expect_odd_trains(context, "Frozen", {"Linear"});
  expect_odd_trains(context, "Frozen", {});
}

RANK_CASE(ParameterKinds, frozen_gradients_stay_undefined) {
  auto module = load(context, "Frozen");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  int64_t frozen = 0;
  for (const auto& [name, tensor] : sharded->parameters()) {
    const bool trains = name.find("c.") == 0 || name == "a.up.bias" || name == "a.down.bias";
    EXPECT_EQ(tensor.requires_grad(), trains) << name;
    EXPECT_EQ(tensor.grad().defined(), trains) << name;
    frozen += trains ? 0 : 1;
  }
  EXPECT_EQ(frozen, 6);
}

/// The host freezes and thaws between steps: a weight, a whole layer, and what was frozen at the wrap. What it freezes
/// is the shard, in the slot of the module.
RANK_CASE(Behaviour_H5, frozen_and_thawed_between_steps) {
  Recipe recipe = odd_recipe(6);
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    for (const auto& [name, parameter] : named_parameters(module)) {
      if (name == "a.up.weight") parameter.requires_grad_(step % 3 != 1);
      if (name.starts_with("b.")) parameter.requires_grad_(step % 4 >= 2);
    }
    return mean_square(module.forward({odd_input(step, rank)}));
  };
  expect_odd_trains(context, "ThreeLayers", {"Layer"}, recipe);
  expect_odd_trains(context, "ThreeLayers", {}, recipe);
  expect_odd_trains(context, "Frozen", {"Layer"}, recipe);
}

/// Cheap enough for every step: nothing is sent or gathered for it, and what is frozen is not reduced.
RANK_CASE_ON(Behaviour_H5, thawing_sends_nothing, 2) {
  auto module = load(context, "ThreeLayers");
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, units_of({"Layer"}), communicator);
  int64_t gathered = 0;
  int64_t reduced = 0;
  for (int64_t step = 0; step < 4; ++step) {
    communicator->forget();
    const bool frozen = step % 2 == 1;
    for (const auto& [name, parameter] : sharded->parameters()) {
      if (name.starts_with("b.")) at::Tensor(parameter).requires_grad_(!frozen);
    }
    EXPECT_TRUE(communicator->records().empty());
    sharded->zero_gradients();
    mean_square(module.forward({odd_input(step, context.rank())})).backward();
    if (step == 0) {
      gathered = communicator->bytes(Collective::kAllGather);
      reduced = communicator->bytes(Collective::kReduceScatter);
    }
    EXPECT_EQ(communicator->bytes(Collective::kAllGather), gathered);
    EXPECT_EQ(communicator->bytes(Collective::kReduceScatter), frozen ? reduced * 2 / 3 : reduced);
  }
}

RANK_CASE_ON(Behaviour_D8, frozen_bytes_are_not_reduced, 2, 4) {
  auto module = load(context, "Frozen");
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, units_of({"Layer"}), communicator);
  communicator->forget();
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  int64_t trainable = 0;
  for (const PlannedUnit& unit : sharded->plan().units) {
    for (const PlannedBuffer& buffer : unit.buffers) {
      if (buffer.trainable) trainable += buffer.part * context.world() * size_of(buffer.dtype);
    }
  }
  EXPECT_EQ(communicator->bytes(Collective::kReduceScatter), trainable);
}

RANK_CASE(ParameterKinds, float64) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return module.forward({odd_input(step, rank).to(at::kDouble)}).toTensor().pow(2).mean();
  };
  Tolerance tight;
  tight.loss = 1e-12;
  tight.gradient = 1e-12;
  tight.parameter = 1e-12;
  expect_odd_trains(context, "Double", {"Layer"}, recipe, tight);
}

RANK_CASE_ON(ParameterKinds, complex64, 2, 4) {
  expect_odd_trains(context, "Complex", {"ComplexLayer"});
}

/// A fork of a unit's own code runs in turn.
RANK_CASE(ParameterKinds, forks_inside_a_unit) {
  expect_odd_trains(context, "ForksInside", {"ForksItsPart"});
}

RANK_CASE(ParameterKinds, a_future_that_leaves_its_unit) {
  auto module = load(context, "WaitsOutside");
  const auto sharded = shard(context, module, units_of({"ReturnsFuture"}));
  const std::string text = text_of_fault([&] { module.forward({odd_input(0, 0)}); });
  EXPECT_NE(text.find("unit `layer` returns a future of torch.jit.fork"), std::string::npos) << text;
}

RANK_CASE(ParameterKinds, no_grad_inside_a_forward) {
  expect_odd_trains(context, "NoGradInside", {"Layer"}, odd_recipe(4));
}

/// A buffer for each, both reduced.
RANK_CASE_ON(ParameterKinds, float32_and_float64_in_one_unit, 2, 4) {
  expect_odd_trains(context, "TwoDtypes", {"TwoDtypes"});
  expect_odd_trains(context, "TwoDtypes", {});
}

RANK_CASE_ON(ParameterKinds, frozen_bfloat16_beside_float32, 2, 4) {
  expect_odd_trains(context, "Mixed", {"MixedDtypes"});
}
RANK_CASE_ON(ParameterKinds, frozen_bfloat16_in_the_root, 2, 4) {
  expect_odd_trains(context, "Mixed", {});
}

/// Numbers by hand: loss = sum(p q) with p = 1 and q = 0, 1, 2.
RANK_CASE_ON(Behaviour_A10, shorter_than_the_number_of_ranks, 2, 4) {
  std::vector<Sharding> shardings = every_strategy({});
  shardings.push_back(per_parameter({}));
  for (const Sharding& sharding : shardings) {
    auto module = load(context, "Tiny");
    const auto sharded = shard(context, module, sharding);
    const at::Tensor loss = module.forward({}).toTensor();
    EXPECT_EQ(loss.item<double>(), 3.0);
    loss.backward();
    TensorsByName wanted;
    wanted["p"] = at::full({1}, 3.0);
    wanted["q"] = at::ones({3});
    Tolerance exact;
    exact.gradient = 0;
    expect_gradients_equal(*sharded, wanted, exact);
    int64_t owned = 0;
    for (const auto& [name, tensor] : sharded->parameters()) {
      ASSERT_TRUE(tensor.grad().defined()) << name << ": a rank without elements has an empty gradient";
      owned += tensor.numel();
    }
    const double copies = sharding.strategy == "no_shard" ? static_cast<double>(context.world()) : 1.0;
    EXPECT_EQ(context.sum(static_cast<double>(owned)), 4.0 * copies);
    torch::optim::SGD optimizer(tensors_of(*sharded), torch::optim::SGDOptions(0.5));
    optimizer.step();
    sharded->detach();
    EXPECT_TRUE(named_parameters(module).at("p").equal(at::full({1}, -0.5)));
    EXPECT_TRUE(named_parameters(module).at("q").equal(at::tensor({-0.5F, 0.5F, 1.5F})));
  }
}

/// In the layout per_parameter, each rank holds what torch.chunk gives it, in its shape.
RANK_CASE_ON(Behaviour_A1, per_parameter_shards_are_those_of_torch_chunk, 2, 4) {
  for (const char* model : {"Tiny", "TinyUnits", "SquareInside", "Mixed", "Convolution", "EmptyParameter", "lm_tied"}) {
    auto module = load(context, model);
    const TensorsByName whole = named_parameters(load(context, model));
    const auto sharded = shard(context, module, per_parameter({}));
    const auto rank = static_cast<size_t>(context.rank());
    for (const auto& [name, tensor] : sharded->parameters()) {
      SCOPED_TRACE(std::string(model) + ", " + name);
      const auto chunks = whole.at(name).detach().chunk(context.world(), 0);
      const at::Tensor wanted = rank < chunks.size() ? chunks[rank] : whole.at(name).detach().narrow(0, 0, 0);
      EXPECT_EQ(tensor.sizes(), wanted.sizes());
      EXPECT_TRUE(tensor.equal(wanted));
      EXPECT_TRUE(tensor.is_leaf());
    }
  }
}

RANK_CASE_ON(ParameterKinds, per_parameter_trains_like_unsharded, 2, 4) {
  struct Case {
    const char* model;
    std::vector<std::string> classes;
  };
  for (const auto& [model, classes] :
       {Case{"Frozen", {"Layer"}}, Case{"Frozen", {}}, Case{"Mixed", {"MixedDtypes"}}, Case{"Mixed", {}},
        Case{"AttentionModel", {"AttentionUnit"}}, Case{"Recurrent", {"LSTM", "GRU"}}}) {
    SCOPED_TRACE(std::string(model) + (classes.empty() ? "" : ", " + classes.front()));
    expect_trains_like_unsharded(context, model, per_parameter(units_of(classes)), odd_recipe(3));
  }
}
RANK_CASE(ParameterKinds, per_parameter_under_every_strategy) {
  for (const Sharding& sharding : every_strategy(units_of({"Outer", "Layer"}))) {
    SCOPED_TRACE(sharding.strategy);
    expect_trains_like_unsharded(context, "Nested", per_parameter(sharding), odd_recipe(3));
  }
}

RANK_CASE_ON(ParameterKinds, tiny_units, 2, 4) {
  Recipe recipe = odd_recipe();
  recipe.rate = 1e-6;  // sums are large here
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return module.forward({odd_input(step, rank)}).toTensor() * 0.01;
  };
  Tolerance tolerance;
  tolerance.loss = 1e-4;
  expect_odd_trains(context, "TinyUnits", {"TinyUnit"}, recipe, tolerance);
  expect_trains_like_unsharded(context, "TinyUnits", per_parameter(units_of({"TinyUnit"})), recipe, tolerance);
}

RANK_CASE(ParameterKinds, module_without_inputs) {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return (module.forward({}).toTensor() * fill({6, 3}, step + rank)).pow(2).sum();
  };
  expect_odd_trains(context, "Square", {}, recipe);
}

RANK_CASE(ParameterKinds, unit_without_inputs) {
  Recipe recipe = odd_recipe();
  recipe.rate = 0.01;
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return module.forward({fill({6, 3}, step + rank)}).toTensor().pow(2);
  };
  expect_odd_trains(context, "SquareInside", {"Square"}, recipe);
}

RANK_CASE(ParameterKinds, weight_read_by_the_parent_of_its_module) {
  expect_odd_trains(context, "AttentionModel", {"AttentionUnit"}, odd_recipe(3));
}
RANK_CASE(ParameterKinds, weight_read_by_the_unit_itself) {
  expect_odd_trains(context, "AttentionModel", {"MultiheadAttention"}, odd_recipe(3));
}
/// The class of out_proj itself: its parameters must go to the reader's unit.
RANK_CASE(ParameterKinds, weight_of_a_unit_that_never_runs) {
  expect_odd_trains(context, "AttentionModel", {"NonDynamicallyQuantizableLinear", "MultiheadAttention"},
                    odd_recipe(3));
  expect_odd_trains(context, "AttentionModel", {"NonDynamicallyQuantizableLinear"}, odd_recipe(3));
}

RANK_CASE(ParameterKinds, weight_of_a_unit_read_by_the_root) {
  expect_odd_trains(context, "ParentReads", {"Layer"});
  expect_odd_trains(context, "ParentReads", {"Linear"});
}

RANK_CASE(ParameterKinds, transformer_of_pytorch) {
  expect_odd_trains(context, "TorchTransformer", {"TransformerEncoderLayer"});
}

/// Buffers are whole on each rank, each with its own values.
RANK_CASE_ON(Behaviour_A25, buffers, 2, 4) {
  const auto loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.forward({odd_input(step, rank).reshape({6, 8})}));
  };
  // Batch statistics are a rank's own, so the unsharded run keeps a module for each rank's statistics.
  auto plain = load(context, "Buffers");
  auto module = load(context, "Buffers");
  const auto sharded = shard(context, module, units_of({"Normalised"}));
  for (int64_t step = 0; step < 3; ++step) {
    // Gradients do not depend on the running statistics in training mode.
    auto fresh = load(context, "Buffers");
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (loss(fresh, step, rank) / static_cast<double>(context.world())).backward();
    }
    TensorsByName gradients;
    for (const auto& [name, tensor] : named_parameters(fresh)) gradients[name] = tensor.grad();
    const double wanted = loss(plain, step, context.rank()).item<double>();
    for (const at::Tensor& tensor : tensors_of(*sharded)) tensor.mutable_grad() = at::Tensor();
    const at::Tensor own = loss(module, step, context.rank());
    EXPECT_NEAR(own.item<double>(), wanted, 2e-5);
    own.backward();
    // The bias before a normalisation has no true gradient.
    Tolerance tolerance;
    for (const char* name : {"layers.0.linear.bias", "layers.1.linear.bias"}) {
      tolerance.noise[name] = at::ones({8}, at::kBool);
    }
    expect_gradients_equal(*sharded, gradients, tolerance);
  }
  std::map<std::string, at::Tensor> buffers;
  for (const auto& buffer : plain.named_buffers()) buffers[buffer.name] = buffer.value;
  ASSERT_EQ(buffers.size(), 7U);
  for (const auto& buffer : module.named_buffers()) {
    EXPECT_TRUE(at::allclose(buffer.value, buffers.at(buffer.name), 1e-5, 1e-6)) << buffer.name;
  }
  sharded->detach();
  module.eval();
  plain.eval();
  const at::NoGradGuard guard;
  EXPECT_LE((module.forward({odd_input(0, 0).reshape({6, 8})}).toTensor() -
             plain.forward({odd_input(0, 0).reshape({6, 8})}).toTensor())
                .abs()
                .max()
                .item<double>(),
            1e-5);
}

Recipe image_recipe() {
  Recipe recipe = odd_recipe();
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.forward({fill({2, 3, 5, 5}, 5 + step) + 0.125 * static_cast<double>(rank)}));
  };
  return recipe;
}

RANK_CASE_ON(ParameterKinds, convolution, 2, 4) {
  expect_odd_trains(context, "Convolution", {"Conv2d"}, image_recipe());
  expect_odd_trains(context, "Convolution", {}, image_recipe());
  expect_trains_like_unsharded(context, "Convolution", per_parameter({}), image_recipe());
}

/// With the parameter's name; the module is as it was before.
void expect_refused(RankContext& context, const std::string& model, const std::string& parameter,
                    const Recipe& recipe) {
  auto module = load(context, model);
  const std::string refusal = refusal_of([&] { shard(context, module, {}); }).text;
  EXPECT_NE(refusal.find("`" + parameter + "`"), std::string::npos) << refusal;
  const auto plain = named_parameters(load(context, model));
  for (const auto& [name, tensor] : named_parameters(module)) EXPECT_TRUE(tensor.equal(plain.at(name))) << name;
  recipe.loss(module, 0, 0).backward();
}

RANK_CASE_ON(Behaviour_A11, not_contiguous, 2, 4) {
  expect_refused(context, "Strided", "convolution.weight", image_recipe());
}
RANK_CASE_ON(Behaviour_A9, zero_dimensions, 2, 4) {
  expect_refused(context, "ScalarParameter", "scalar", odd_recipe());
}
RANK_CASE_ON(ParameterKinds, zero_elements, 2, 4) {
  Recipe recipe = odd_recipe();
  recipe.rate = 1e-3;
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    return module.forward({odd_input(step, rank)}).toTensor();
  };
  expect_odd_trains(context, "EmptyParameter", {}, recipe);
  expect_trains_like_unsharded(context, "EmptyParameter", per_parameter({}), recipe);
}

}  // namespace
}  // namespace fsdp2::testing
