#include "tests/ranks/harness/training.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <set>

#include "plugin/wrap/planner.hpp"

namespace fsdp2::testing {
namespace jit = torch::jit;

namespace {

/// A tied parameter once, by its first name.
std::vector<std::pair<std::string, at::Tensor>> distinct_parameters(const jit::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  std::set<const void*> seen;
  for (const auto& parameter : module.named_parameters()) {
    if (seen.insert(parameter.value.unsafeGetTensorImpl()).second) {
      result.emplace_back(parameter.name, parameter.value);
    }
  }
  return result;
}

/// Position of a rank in the shard dimension.
int64_t shard_rank(const ShardedModule& sharded) {
  return sharded.statistics().rank % sharded.plan().mesh.shard;
}

struct PlannedPart {
  const PlannedParameter* parameter;
  ShardRange range;
};

std::map<std::string, PlannedPart> parts_of(const ShardedModule& sharded) {
  std::map<std::string, PlannedPart> result;
  for (const PlannedUnit& unit : sharded.plan().units) {
    for (const PlannedParameter& parameter : unit.parameters) {
      result[parameter.name] = {&parameter, shard_range(unit, parameter, shard_rank(sharded))};
    }
  }
  return result;
}

at::Tensor part_of(const at::Tensor& full, ShardRange range) {
  return full.detach().reshape({-1}).slice(0, range.begin, range.end);
}

}  // namespace

Plan plan_for(const ModuleTree& tree, const Sharding& sharding, int64_t world) {
  Fsdp2Options options;
  options.strategy = sharding.strategy;
  options.layout = sharding.layout;
  options.reshard_after_forward = sharding.reshard;
  options.wrap.policy = sharding.policy;
  options.wrap.layer_classes = sharding.classes;
  options.wrap.modules = sharding.modules;
  if (sharding.policy == WrapPolicy::kTransformer && sharding.classes.empty()) {
    options.wrap.policy = sharding.modules.empty() ? WrapPolicy::kNone : WrapPolicy::kModules;
  }
  options.mesh = sharding.mesh;
  options.mixed_precision = sharding.precision;
  options.load_mode = sharding.load_mode;
  options.prefetch = sharding.prefetch;
  options.ignored_modules = sharding.ignored;
  options.gradient.divide_factor = sharding.divide_factor;
  options.gradient.clip_norm = sharding.clip_norm;
  options.debug.force_collectives = sharding.force_collectives;
  options.debug.timeout_s = 60;
  options.debug.check_steps = sharding.check_steps;
  options.debug.order_check = sharding.order_check;
  return make_plan(tree, options, world);
}

std::unique_ptr<ShardedModule> shard(RankContext& context, const jit::Module& module, const Sharding& sharding,
                                     std::shared_ptr<Communicator> communicator, std::vector<LogLine>* log) {
  if (!communicator) communicator = context.new_communicator();
  return ShardedModule::shard(
      module, std::move(communicator),
      [&](const ModuleTree& tree, int64_t world) { return plan_for(tree, sharding, world); },
      [log](bool warning, const std::string& text) {
        if (log) log->push_back({warning, text});
      });
}

jit::Module load(const RankContext& context, const std::string& model) {
  jit::Module module = jit::load(context.model_path(model));
  module.train();
  return module;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Optimizer kind, std::vector<at::Tensor> parameters,
                                                        double rate) {
  std::vector<at::Tensor> trainable;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  if (kind == Optimizer::kAdamW) {
    return std::make_unique<torch::optim::AdamW>(trainable, torch::optim::AdamWOptions(rate));
  }
  return std::make_unique<torch::optim::SGD>(
      trainable, torch::optim::SGDOptions(rate).momentum(kind == Optimizer::kMomentum ? 0.9 : 0.0));
}

TensorsByName named_parameters(const jit::Module& module) {
  TensorsByName result;
  for (const auto& parameter : module.named_parameters()) result[parameter.name] = parameter.value;
  return result;
}

Reference train_unsharded(jit::Module module, const Recipe& recipe, int64_t world) {
  // As the engine does: the optimising executor's gradients can be wrong, and its passes take their time.
  const jit::GraphOptimizerEnabledGuard as_written(false);
  Reference result;
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : distinct_parameters(module)) parameters.push_back(tensor);
  const auto optimizer = make_optimizer(recipe.optimizer, parameters, recipe.rate);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    optimizer->zero_grad();
    std::vector<double> losses;
    for (int64_t rank = 0; rank < world; ++rank) {
      const at::Tensor loss = recipe.loss(module, step, rank);
      (loss / static_cast<double>(world)).backward();
      losses.push_back(loss.item<double>());
    }
    result.losses.push_back(losses);
    if (recipe.clip_norm) result.norms.push_back(torch::nn::utils::clip_grad_norm_(parameters, *recipe.clip_norm));
    TensorsByName gradients;
    for (const auto& parameter : module.named_parameters()) {
      const at::Tensor& gradient = parameter.value.grad();
      gradients[parameter.name] = gradient.defined() ? gradient.detach().clone() : at::Tensor();
    }
    result.gradients.push_back(std::move(gradients));
    optimizer->step();
  }
  for (const auto& [name, tensor] : named_parameters(module)) result.parameters[name] = tensor.detach().clone();
  return result;
}

TensorsByName elements_of_noise(const RankContext& context, const std::string& model, const Recipe& recipe) {
  jit::Module exact = load(context, model);
  // Not Module::to(), which converts buffers of integers as well.
  const auto widen = [](const at::Tensor& tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(at::kDouble));
  };
  for (const at::Tensor& parameter : exact.parameters()) widen(parameter);
  for (const at::Tensor& buffer : exact.buffers()) widen(buffer);
  Recipe once = recipe;
  once.steps = 1;
  const TensorsByName wanted = train_unsharded(exact, once, context.world()).gradients[0];
  const TensorsByName rounded = train_unsharded(load(context, model), once, context.world()).gradients[0];
  double largest = 0;
  for (const auto& [name, gradient] : wanted) {
    if (gradient.defined()) largest = std::max(largest, gradient.abs().max().item<double>());
  }
  TensorsByName result;
  for (const auto& [name, gradient] : wanted) {
    if (!gradient.defined()) continue;
    const at::Tensor small = gradient.abs() < 1e-7 * largest;
    // An element that no rank's data reaches is exactly zero in every run; where nothing else is there, any may be
    // noise.
    const bool all = small.all().item<bool>();
    const at::Tensor mask = all ? small : small.logical_and((gradient != 0).logical_or(rounded.at(name) != 0));
    if (mask.any().item<bool>()) result[name] = mask;
  }
  return result;
}

void expect_gradients_equal(const ShardedModule& sharded, const TensorsByName& full, const Tolerance& tolerance) {
  const auto parts = parts_of(sharded);
  const auto parameters = sharded.parameters();
  ASSERT_EQ(parameters.size(), parts.size());
  for (const auto& [name, shard] : parameters) {
    SCOPED_TRACE("gradient of " + name);
    ASSERT_EQ(full.count(name), 1U);
    ASSERT_EQ(parts.count(name), 1U);
    const at::Tensor& wanted = full.at(name);
    const PlannedPart& part = parts.at(name);
    EXPECT_EQ(shard.sizes().vec(), shard_shape(*part.parameter, part.range));
    if (!wanted.defined()) {
      EXPECT_FALSE(shard.grad().defined()) << "the unsharded run has no gradient here";
      continue;
    }
    ASSERT_TRUE(shard.grad().defined());
    ASSERT_EQ(shard.grad().sizes(), shard.sizes());
    EXPECT_EQ(shard.grad().scalar_type(), shard.scalar_type());
    const double norm = wanted.norm().item<double>();
    at::Tensor difference = shard.grad().detach().reshape({-1}) - part_of(wanted, part.range);
    if (tolerance.noise.count(name)) {
      // A zero gradient has no relative error; its noise stays far below any real gradient.
      const at::Tensor noise = part_of(tolerance.noise.at(name), part.range);
      EXPECT_LE((difference * noise).norm().item<double>(), 1e-6);
      difference = difference.masked_fill(noise, 0);
    }
    EXPECT_LE(difference.norm().item<double>(), tolerance.gradient * norm) << "norm of the whole " << norm;
  }
}

void expect_shards_equal(const ShardedModule& sharded, const TensorsByName& full, double tolerance) {
  const auto parts = parts_of(sharded);
  for (const auto& [name, shard] : sharded.parameters()) {
    SCOPED_TRACE("parameter " + name);
    ASSERT_EQ(full.count(name), 1U);
    const at::Tensor wanted = part_of(full.at(name), parts.at(name).range);
    ASSERT_EQ(shard.numel(), wanted.numel());
    if (wanted.numel() == 0) continue;
    const at::Tensor difference = (shard.detach().reshape({-1}) - wanted).abs().to(at::kDouble).max();
    EXPECT_LE(difference.item<double>(), tolerance);
  }
}

void expect_parameters_equal(const jit::Module& module, const TensorsByName& full, const Tolerance& tolerance) {
  const TensorsByName own = named_parameters(module);
  ASSERT_EQ(own.size(), full.size());
  for (const auto& [name, wanted] : full) {
    SCOPED_TRACE("parameter " + name);
    ASSERT_EQ(own.count(name), 1U);
    ASSERT_EQ(own.at(name).sizes(), wanted.sizes());
    ASSERT_EQ(own.at(name).scalar_type(), wanted.scalar_type());
    if (wanted.numel() == 0) continue;
    at::Tensor difference = (own.at(name).detach() - wanted).abs().to(at::kDouble);
    if (tolerance.noise.count(name)) difference = difference.masked_fill(tolerance.noise.at(name), 0);
    EXPECT_LE(difference.max().item<double>(), tolerance.parameter);
  }
}

void expect_trains_like(RankContext& context, jit::Module module, const Sharding& sharding, const Recipe& recipe,
                        const Reference& reference, const Tolerance& tolerance) {
  Sharding with_clipping = sharding;
  with_clipping.clip_norm = recipe.clip_norm;
  const auto sharded = shard(context, module, with_clipping);
  const auto optimizer = make_optimizer(recipe.optimizer, tensors_of(*sharded), recipe.rate);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    optimizer->zero_grad();
    const at::Tensor loss = recipe.loss(module, step, context.rank());
    EXPECT_NEAR(loss.item<double>(), reference.losses[static_cast<size_t>(step)][static_cast<size_t>(context.rank())],
                tolerance.loss);
    loss.backward();
    // Later gradients start from parameters that differ in the last bits already.
    Tolerance of_step = tolerance;
    if (step > 0) of_step.gradient *= 100;
    const std::optional<double> norm = sharded->clip_gradients();
    ASSERT_EQ(norm.has_value(), recipe.clip_norm.has_value());
    if (norm) {
      const double wanted = reference.norms[static_cast<size_t>(step)];
      EXPECT_NEAR(*norm, wanted, of_step.gradient * wanted);
    }
    expect_gradients_equal(*sharded, reference.gradients[static_cast<size_t>(step)], of_step);
    if (sharded->plan().mesh.shard > 1) {
      EXPECT_EQ(sharded->statistics().unsharded_bytes, 0) << "whole parameters are left after backward";
    }
    optimizer->step();
  }
  if (tolerance.noise.empty()) expect_shards_equal(*sharded, reference.parameters, tolerance.parameter);
  sharded->detach();
  expect_parameters_equal(module, reference.parameters, tolerance);
}

void expect_trains_like_unsharded(RankContext& context, const std::string& model, const Sharding& sharding,
                                  const Recipe& recipe, const Tolerance& tolerance) {
  const Reference reference = train_unsharded(load(context, model), recipe, context.world());
  expect_trains_like(context, load(context, model), sharding, recipe, reference, tolerance);
}

std::vector<at::Tensor> tensors_of(const ShardedModule& sharded) {
  std::vector<at::Tensor> result;
  for (const auto& [name, tensor] : sharded.parameters()) result.push_back(tensor);
  return result;
}

at::Tensor mean_square(const c10::IValue& value) {
  at::Tensor total = at::zeros({});
  const auto add = [&](const c10::IValue& inner) { total = total + mean_square(inner); };
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().is_floating_point()) return value.toTensor().pow(2).mean();
  } else if (value.isTuple()) {
    for (const c10::IValue& inner : value.toTupleRef().elements()) add(inner);
  } else if (value.isList()) {
    for (const c10::IValue& inner : value.toListRef()) add(inner);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) add(entry.value());
  }
  return total;
}

}  // namespace fsdp2::testing
