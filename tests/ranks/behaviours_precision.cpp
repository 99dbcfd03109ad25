// Mixed precision on the forward side: rows G of PyTorch's behaviours. The reference is what a trainer would write
// without sharding: full-precision masters, and a copy of them in the compute dtype that runs forward and backward.
#include <ATen/ops/linear.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <array>

#include "plugin/sharded_tensors.hpp"
#include "plugin/wrap/planner.hpp"
#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

namespace jit = torch::jit;

Sharding computing_in(DType dtype, Sharding sharding) {
  sharding.precision.param = dtype;
  return sharding;
}

/// Casts the floating parameters of `master` into those of `copy`.
void refresh(jit::Module& copy, const jit::Module& master, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const TensorsByName masters = named_parameters(master);
  for (const auto& [name, tensor] : named_parameters(copy)) {
    if (tensor.is_floating_point()) tensor.set_data(masters.at(name).detach().to(dtype));
  }
}

/// Gradients are averaged in the compute dtype and stepped in that of the masters.
Reference train_with_a_copy(jit::Module master, jit::Module copy, const Recipe& recipe, int64_t world,
                            at::ScalarType dtype) {
  const jit::GraphOptimizerEnabledGuard as_written(false);
  Reference result;
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : master.parameters()) parameters.push_back(parameter);
  const auto optimizer = make_optimizer(recipe.optimizer, parameters, recipe.rate);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    refresh(copy, master, dtype);
    std::vector<double> losses;
    TensorsByName sums;
    for (int64_t rank = 0; rank < world; ++rank) {
      for (const at::Tensor& parameter : copy.parameters()) at::Tensor(parameter).mutable_grad() = at::Tensor();
      const at::Tensor loss = recipe.loss(copy, step, rank);
      loss.backward();
      losses.push_back(loss.item<double>());
      for (const auto& [name, tensor] : named_parameters(copy)) {
        if (!tensor.grad().defined()) continue;
        const at::Tensor wide = tensor.grad().to(at::kDouble);
        sums[name] = sums.contains(name) ? sums.at(name) + wide : wide;
      }
    }
    result.losses.push_back(losses);
    TensorsByName gradients;
    for (const auto& [name, tensor] : named_parameters(master)) {
      gradients[name] = at::Tensor();
      if (!sums.contains(name)) continue;
      const at::Tensor mean = sums.at(name) / static_cast<double>(world);
      gradients[name] = mean.to(dtype).to(tensor.scalar_type());
      tensor.mutable_grad() = gradients[name];
    }
    result.gradients.push_back(std::move(gradients));
    optimizer->step();
  }
  for (const auto& [name, tensor] : named_parameters(master)) result.parameters[name] = tensor.detach().clone();
  return result;
}

/// An input in the dtype of the module's parameters at rest.
at::Tensor input_for(const jit::Module& module, int64_t step, int64_t rank) {
  return odd_input(step, rank).to((*module.parameters().begin()).scalar_type());
}

Recipe low_recipe() {
  Recipe recipe;
  recipe.loss = [](jit::Module& module, int64_t step, int64_t rank) {
    return mean_square(module.forward({input_for(module, step, rank)}));
  };
  return recipe;
}

/// The same kernels on the same numbers: what differs is the order in which a few are added.
Tolerance low_tolerance(DType dtype) {
  const double unit = dtype == DType::kBFloat16 ? 1.0 / 256 : 1.0 / 2048;
  Tolerance tolerance;
  tolerance.loss = unit;
  tolerance.gradient = unit / 100;
  tolerance.parameter = unit / 10;
  return tolerance;
}

void expect_trains_in(RankContext& context, const std::string& model, DType dtype,
                      const std::vector<Sharding>& shardings) {
  const at::ScalarType type = dtype == DType::kBFloat16 ? at::kBFloat16 : at::kHalf;
  const Reference reference =
      train_with_a_copy(load(context, model), load(context, model), low_recipe(), context.world(), type);
  for (const Sharding& sharding : shardings) {
    SCOPED_TRACE(model + " " + sharding.strategy + " " + std::string(name_of(sharding.layout)));
    expect_trains_like(context, load(context, model), computing_in(dtype, sharding), low_recipe(), reference,
                       low_tolerance(dtype));
  }
}

RANK_CASE_ON(Behaviour_G1, computes_in_a_low_dtype, 1, 2) {
  std::vector<Sharding> shardings = every_strategy(units_of({"Layer"}));
  shardings.push_back(units_of({"Layer"}));
  shardings.back().layout = Layout::kPerParameter;
  expect_trains_in(context, "ThreeLayers", DType::kBFloat16, shardings);
  expect_trains_in(context, "ThreeLayers", DType::kFloat16, {units_of({"Layer"})});
  expect_trains_in(context, "Frozen", DType::kBFloat16, {units_of({"Layer"})});
}

/// Half the bytes move, and half the bytes are whole at once: as the plan says, counted by the communicator.
RANK_CASE_ON(Behaviour_G1, bytes_of_the_compute_dtype, 1, 2) {
  for (const std::string strategy : {"full_shard", "no_shard"}) {
    for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
      SCOPED_TRACE(strategy + " " + std::string(name_of(layout)));
      Sharding sharding = units_of({"Layer"});
      sharding.strategy = strategy;
      sharding.layout = layout;
      auto module = load(context, "ThreeLayers");
      auto communicator = context.new_communicator();
      const auto sharded = shard(context, module, computing_in(DType::kBFloat16, sharding), communicator);
      communicator->forget();
      const auto whole = [&](int64_t bytes_of_an_element) {
        int64_t elements = 0;
        for (const PlannedUnit& unit : sharded->plan().units) {
          for (const PlannedBuffer& buffer : unit.buffers) elements += buffer.part * sharded->plan().mesh.shard;
        }
        return elements * bytes_of_an_element;
      };
      const bool gathered = strategy == "full_shard" && context.world() > 1;
      mean_square(module.forward({odd_input(0, context.rank())})).backward();
      // Every layer twice; the root has no parameters.
      EXPECT_EQ(communicator->bytes(Collective::kAllGather), gathered ? 2 * whole(2) : 0);
      const Statistics statistics = sharded->statistics();
      EXPECT_EQ(statistics.shard_bytes * sharded->plan().mesh.shard, whole(4));
      EXPECT_EQ(statistics.all_gather_bytes, communicator->bytes(Collective::kAllGather));
      EXPECT_GT(statistics.planned_peak_bytes, 0);
      EXPECT_EQ(statistics.unsharded_peak_bytes, statistics.planned_peak_bytes);
      EXPECT_EQ(statistics.unsharded_bytes, 0);
    }
  }
}

/// With units that have policies of their own: `change` writes them into the plan.
std::unique_ptr<ShardedModule> shard_with(RankContext& context, const jit::Module& module, const Sharding& sharding,
                                          const std::function<void(PlannedUnit&)>& change) {
  return ShardedModule::shard(module, context.new_communicator(),
                              [&](const ModuleTree& tree, int64_t world) {
                                Plan plan = plan_for(tree, sharding, world);
                                for (PlannedUnit& unit : plan.units) change(unit);
                                return plan;
                              },
                              {});
}

void compute_in(PlannedUnit& unit, DType dtype, bool cast_inputs) {
  for (PlannedBuffer& buffer : unit.buffers) buffer.cast = dtype;
  if (cast_inputs) unit.inputs_cast = dtype;
}

/// The dtypes that the two units saw, and that of the output.
void expect_seen(RankContext& context, const std::function<void(PlannedUnit&)>& change, at::ScalarType first,
                 at::ScalarType second, at::ScalarType extra_of_second, at::ScalarType output) {
  auto module = load(context, "Seeing");
  const auto sharded = shard_with(context, module, units_of({"Seeing"}), change);
  const at::Tensor x = fill({2, 8}, 3).requires_grad_();
  const at::Tensor mask = at::zeros({2, 8}, at::kBool);
  const at::Tensor count = at::ones({1}, at::kLong);
  const at::Tensor result = module.forward({x, fill({2, 8}, 4), mask, count}).toTensor();
  const auto seen = [&](const char* unit, const char* what) {
    return static_cast<at::ScalarType>(module.attr(unit).toModule().attr(what).toInt());
  };
  EXPECT_EQ(seen("first", "seen_x"), first);
  EXPECT_EQ(seen("second", "seen_x"), second);
  EXPECT_EQ(seen("second", "seen_extra"), extra_of_second);
  EXPECT_EQ(result.scalar_type(), output);
  for (const char* unit : {"first", "second"}) {
    EXPECT_EQ(seen(unit, "seen_mask"), at::kBool);
    EXPECT_EQ(seen(unit, "seen_count"), at::kLong);
  }
  result.to(at::kFloat).pow(2).mean().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  for (const auto& [name, shard] : sharded->parameters()) EXPECT_EQ(shard.grad().scalar_type(), at::kFloat) << name;
}

RANK_CASE(Behaviour_G5, casts_of_one_unit_and_not_of_another) {
  const auto half = [](bool first, bool cast_inputs) {
    return [=](PlannedUnit& unit) {
      if (unit.path == (first ? "first" : "second")) compute_in(unit, DType::kFloat16, cast_inputs);
    };
  };
  expect_seen(context, half(false, true), at::kFloat, at::kHalf, at::kHalf, at::kHalf);
  expect_seen(context, half(false, false), at::kFloat, at::kFloat, at::kFloat, at::kHalf);
  const auto wide_output = [&](PlannedUnit& unit) {
    half(true, true)(unit);
    if (unit.path == "first") unit.outputs_cast = DType::kFloat32;
  };
  expect_seen(context, wide_output, at::kHalf, at::kFloat, at::kFloat, at::kFloat);
}

/// G6 and G7: further floating arguments are cast like the first, integers and booleans are not.
RANK_CASE(Behaviour_G6, further_arguments) {
  const auto all = [](PlannedUnit& unit) { compute_in(unit, DType::kBFloat16, true); };
  expect_seen(context, all, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16);
  const auto off = [](PlannedUnit& unit) {
    compute_in(unit, DType::kBFloat16, false);
    if (unit.path == "first") unit.outputs_cast = DType::kFloat64;
  };
  expect_seen(context, off, at::kFloat, at::kDouble, at::kFloat, at::kBFloat16);
}

RANK_CASE(Behaviour_G7, token_ids_stay_integers) {
  auto module = load(context, "lm");
  const auto sharded = shard(context, module, computing_in(DType::kBFloat16, by_layer({"lm", "Block"})));
  const at::Tensor logits = module.forward({input_ids(0, context.rank())}).toTensor();
  const at::Tensor wanted = load(context, "lm").forward({input_ids(0, context.rank())}).toTensor();
  EXPECT_LE((logits.to(at::kFloat) - wanted).norm().item<double>(), 0.02 * wanted.norm().item<double>());
}

/// Units that write to tensors of a caller who computes in another dtype, and reads them again.
RANK_CASE(Behaviour_G6, what_a_unit_writes_to_its_inputs_reaches_the_caller) {
  struct Case {
    const char* model;
    const char* unit_class;
  };
  for (const auto& [model, unit_class] :
       {Case{"WritesBuffer", "AddsToBuffer"}, Case{"ReluReadAgain", "ReluFirst"}, Case{"ReluOfView", "ReluFirst"}}) {
    SCOPED_TRACE(model);
    const jit::GraphOptimizerEnabledGuard as_written(false);
    auto module = load(context, model);
    auto plain = load(context, model);
    const auto sharded = shard_with(context, module, units_of({unit_class}), [](PlannedUnit& unit) {
      if (!unit.path.empty()) compute_in(unit, DType::kBFloat16, true);
    });
    const at::Tensor x = odd_input(0, context.rank()).requires_grad_();
    const at::Tensor y = odd_input(0, context.rank()).requires_grad_();
    const at::Tensor result = module.forward({x}).toTensor();
    const at::Tensor wanted = plain.forward({y}).toTensor();
    const auto expect_near = [](const at::Tensor& own, const at::Tensor& other) {
      EXPECT_LE((own - other).norm().item<double>(), 0.02 * other.norm().item<double>());
    };
    EXPECT_EQ(result.scalar_type(), at::kFloat);
    expect_near(result, wanted);
    result.pow(2).mean().backward();
    wanted.pow(2).mean().backward();
    expect_near(x.grad(), y.grad());
  }
}

RANK_CASE(Behaviour_G9, containers_of_activations) {
  expect_trains_in(context, "Containers", DType::kBFloat16,
                   {units_of({"TupleUnit", "ListUnit", "DictUnit", "OptionalUnit", "NamedTupleUnit"})});
}

RANK_CASE(Behaviour_G10, frozen_of_another_dtype) {
  for (const std::vector<std::string>& classes : {std::vector<std::string>{"TwoStored"}, {}}) {
    expect_odd_trains(context, "TwoStored_frozen", classes);
    expect_trains_in(context, "TwoStored_frozen", DType::kBFloat16, {units_of(classes)});
  }
}

/// PyTorch refuses them; here each dtype has a buffer of its own.
RANK_CASE(Behaviour_G11, two_trainable_dtypes_in_a_unit) {
  for (const std::vector<std::string>& classes : {std::vector<std::string>{"TwoStored"}, {}}) {
    const Reference reference = train_unsharded(load(context, "TwoStored"), odd_recipe(), context.world());
    Tolerance rounding;  // of what is stored in bfloat16
    rounding.loss = rounding.gradient = 1.0 / 256;
    rounding.parameter = 2.0 / 256;
    for (const Sharding& sharding : every_strategy(units_of(classes))) {
      expect_trains_like(context, load(context, "TwoStored"), sharding, odd_recipe(), reference, rounding);
    }
    expect_trains_in(context, "TwoStored", DType::kBFloat16, every_strategy(units_of(classes)));
  }
}

RANK_CASE(Behaviour_G12, dtypes_of_loss_and_gradients) {
  for (const bool output : {false, true}) {
    auto module = load(context, "Double");
    Sharding sharding = computing_in(DType::kFloat32, units_of({"Layer"}));
    if (output) sharding.precision.output = DType::kBFloat16;
    const auto sharded = shard(context, module, sharding);
    const at::Tensor loss = module.forward({odd_input(0, context.rank())}).toTensor().pow(2).mean();
    EXPECT_EQ(loss.scalar_type(), output ? at::kBFloat16 : at::kFloat);
    loss.backward();
    for (const auto& [name, shard] : sharded->parameters()) {
      EXPECT_EQ(shard.scalar_type(), at::kDouble) << name;
      EXPECT_EQ(shard.grad().scalar_type(), at::kDouble) << name;
    }
  }
}

/// Inference tensors count no versions.
RANK_CASE_ON(Behaviour_G5, casts_under_inference_mode, 1, 2) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, computing_in(DType::kBFloat16, units_of({"Layer"})));
  at::Tensor wanted;
  {
    const at::NoGradGuard no_grad;
    wanted = module.forward({odd_input(0, context.rank())}).toTensor();
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(module.forward({odd_input(0, context.rank())}).toTensor().equal(wanted));
}

/// Full parameters for the host have every bit of the masters, whatever the units compute in.
RANK_CASE_ON(Behaviour_G1, local_use_and_detach_keep_every_bit, 1, 2) {
  for (const std::string strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
    for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
      SCOPED_TRACE(strategy);
      auto module = load(context, "ThreeLayers");
      const TensorsByName masters = named_parameters(load(context, "ThreeLayers"));
      Sharding sharding = computing_in(DType::kBFloat16, units_of({"Layer"}));
      sharding.strategy = strategy;
      sharding.layout = layout;
      const auto sharded = shard(context, module, sharding);
      const auto expect_masters = [&](double factor) {
        for (const auto& [name, tensor] : named_parameters(module)) {
          EXPECT_TRUE(tensor.equal(masters.at(name) * factor)) << name;
        }
      };
      {
        const at::NoGradGuard no_grad;
        EXPECT_EQ(module.forward({odd_input(0, 0)}).toTensor().scalar_type(), at::kBFloat16);
      }
      sharded->begin_local_use();
      expect_masters(1);
      auto plain = load(context, "ThreeLayers");
      EXPECT_TRUE(module.forward({odd_input(0, 0)}).toTensor().equal(plain.forward({odd_input(0, 0)}).toTensor()));
      {
        const at::NoGradGuard no_grad;
        for (const at::Tensor& tensor : module.parameters()) tensor.mul_(2.0);
      }
      sharded->end_local_use(/*write_back=*/true);
      EXPECT_EQ(sharded->statistics().unsharded_bytes, 0);
      // The next forward computes with what was written.
      {
        const at::NoGradGuard no_grad;
        for (const at::Tensor& tensor : plain.parameters()) tensor.mul_(2.0);
        const at::Tensor wanted = plain.forward({odd_input(0, 0)}).toTensor();
        const at::Tensor result = module.forward({odd_input(0, 0)}).toTensor().to(at::kFloat);
        EXPECT_LE((result - wanted).norm().item<double>(), 0.02 * wanted.norm().item<double>());
      }
      sharded->detach();
      expect_masters(2);
    }
  }
}

/// A host's own tensors show the whole in the compute dtype between enter and exit, and their shards in their own.
RANK_CASE_ON(Behaviour_G1, tensors_of_a_host, 1, 2) {
  const std::array<int64_t, 1> written{0};
  const at::Tensor master = fill({6, 4}, 1).clone().requires_grad_();
  const at::Tensor weight = fill({6, 4}, 1).clone().requires_grad_();
  Sharding sharding = computing_in(DType::kBFloat16, {});
  const std::vector<NamedTensor> parameters{{"weight", weight}};
  const auto engine =
      ShardedTensors::shard(parameters, context.new_communicator(),
                            [&](const ModuleTree& tree, int64_t world) { return plan_for(tree, sharding, world); }, {});
  for (int64_t step = 0; step < 3; ++step) {
    const at::Tensor low = master.detach().to(at::kBFloat16).requires_grad_();
    at::Tensor sum = at::zeros({6, 4}, at::kDouble);
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      low.mutable_grad() = at::Tensor();
      at::linear(fill({3, 4}, step + rank).to(at::kBFloat16), low).pow(2).mean().backward();
      sum += low.grad();
    }
    const at::Tensor mean = (sum / static_cast<double>(context.world())).to(at::kBFloat16).to(at::kFloat);

    const auto call = engine->enter("");
    const auto inputs =
        call->begin(c10::ivalue::Tuple::create(std::vector<c10::IValue>{fill({3, 4}, step + context.rank())}), written);
    EXPECT_EQ(weight.scalar_type(), at::kBFloat16);
    const at::Tensor loss = at::linear(inputs.toTupleRef().elements()[0].toTensor(), weight).pow(2).mean();
    call->end(c10::ivalue::Tuple::create(std::vector<c10::IValue>{loss}));
    EXPECT_EQ(weight.scalar_type(), at::kFloat);
    loss.backward();
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    const ShardGeometry part = engine->geometry()[0];
    const auto own = [&](const at::Tensor& full) { return full.view(-1).slice(0, part.range.begin, part.range.end); };
    EXPECT_TRUE(weight.grad().view(-1).equal(own(mean)));
    const at::NoGradGuard no_grad;
    weight.sub_(weight.grad(), 0.1);
    weight.mutable_grad() = at::Tensor();
    master.sub_(mean, 0.1);
    EXPECT_TRUE(weight.detach().view(-1).equal(own(master.detach())));
  }
  engine->detach();
  EXPECT_TRUE(weight.equal(master));
}

}  // namespace
}  // namespace fsdp2::testing
