// The engine against PyTorch's own fully_shard: same weights, same data, numbers made by reference.py.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

using nlohmann::json;

json reference_for(RankContext& context, const std::string& model) {
  const char* folder = std::getenv("FSDP2_TEST_REFERENCES");
  if (folder == nullptr) throw std::runtime_error("FSDP2_TEST_REFERENCES names no folder");
  std::ifstream file(std::string(folder) + "/fully_shard_" + model + "_" + std::to_string(context.world()) + ".json");
  return json::parse(file);
}

constexpr int64_t kSamples = 12;

/// What reference.py's summary() stores, made from all ranks' parts: norm, sum, weighted sum, samples.
std::vector<double> summary(RankContext& context, const at::Tensor& part, ShardRange range, int64_t whole,
                            bool replicated) {
  const at::Tensor values = part.detach().reshape({-1}).to(at::kDouble);
  const at::Tensor k = at::arange(range.begin, range.end, at::kLong);
  const at::Tensor weights = (7919 * k).remainder(1009).to(at::kDouble) / 1009.0 - 0.5;
  std::vector<double> own{values.pow(2).sum().item<double>(), values.sum().item<double>(),
                          (values * weights).sum().item<double>()};
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t index = (i * 7919 + 13) % whole;
    const bool mine = index >= range.begin && index < range.end;
    own.push_back(mine ? values[index - range.begin].item<double>() : 0.0);
  }
  if (!replicated) own = context.sum(std::move(own));
  own[0] = std::sqrt(own[0]);
  return own;
}

void expect_summary(const std::vector<double>& own, const json& wanted, double relative, double absolute) {
  const double norm = wanted["norm"].get<double>();
  const double allowed = relative * norm + absolute;
  EXPECT_NEAR(own[0], norm, allowed) << "norm";
  EXPECT_NEAR(own[1], wanted["sum"].get<double>(), 10 * allowed) << "sum";
  EXPECT_NEAR(own[2], wanted["weighted"].get<double>(), 10 * allowed) << "weighted sum";
  ASSERT_EQ(wanted["samples"].size(), static_cast<size_t>(kSamples));
  for (size_t i = 0; i < static_cast<size_t>(kSamples); ++i) {
    EXPECT_NEAR(own[3 + i], wanted["samples"][i].get<double>(), allowed) << "sample " << i;
  }
}

/// Every rank holds rows where PyTorch's DTensors hold them.
void expect_same_shards(RankContext& context, const ShardedModule& sharded, const json& reference) {
  for (const auto& [name, tensor] : sharded.parameters()) {
    EXPECT_EQ(tensor.sizes().vec(),
              reference["shards"][name][static_cast<size_t>(context.rank())].get<std::vector<int64_t>>())
        << name;
  }
}

void same_as_fully_shard(RankContext& context, const std::string& file, const std::string& model,
                         const Sharding& sharding) {
  const json reference = reference_for(context, model);
  ASSERT_EQ(reference["world"], context.world());
  auto module = load(context, file);
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, sharding, communicator);
  const bool replicated = sharding.strategy == "no_shard";
  const auto ranges = [&] {
    std::map<std::string, std::pair<ShardRange, int64_t>> result;
    for (const PlannedUnit& unit : sharded->plan().units) {
      for (const PlannedParameter& parameter : unit.parameters) {
        result[parameter.name] = {shard_range(unit, parameter, replicated ? 0 : context.rank()),
                                  numel(parameter.shape)};
      }
    }
    return result;
  }();
  ASSERT_EQ(sharded->parameters().size(), reference["gradients"].size());
  if (sharding.layout == Layout::kPerParameter) expect_same_shards(context, *sharded, reference);
  communicator->forget();
  torch::optim::SGD optimizer(tensors_of(*sharded),
                              torch::optim::SGDOptions(reference["optimizer"]["rate"].get<double>())
                                  .momentum(reference["optimizer"]["momentum"].get<double>()));
  for (int64_t step = 0; step < reference["data"]["steps"].get<int64_t>(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    optimizer.zero_grad();
    const at::Tensor ids = token_ids(step, context.rank(), 2, 17, kVocabulary);
    const at::Tensor logits = module.forward({ids.slice(1, 0, 16)}).toTensor().to(at::kFloat);
    const at::Tensor loss =
        at::cross_entropy_loss(logits.reshape({-1, kVocabulary}), ids.slice(1, 1, 17).reshape({-1}));
    EXPECT_NEAR(loss.item<double>(),
                reference["losses"][static_cast<size_t>(step)][static_cast<size_t>(context.rank())], 2e-5);
    loss.backward();
    if (step == 0 && sharding.layout == Layout::kPerParameter) {
      EXPECT_EQ(communicator->bytes(Collective::kAllGather), reference["bytes_of_a_step"]["gathered"]);
      EXPECT_EQ(communicator->bytes(Collective::kReduceScatter), reference["bytes_of_a_step"]["reduced"]);
    }
    if (step == 0) {
      for (const auto& [name, tensor] : sharded->parameters()) {
        SCOPED_TRACE("gradient of " + name);
        ASSERT_TRUE(reference["gradients"].contains(name));
        const auto& [range, whole] = ranges.at(name);
        expect_summary(summary(context, tensor.grad(), range, whole, replicated), reference["gradients"][name], 1e-5,
                       0);
      }
    }
    optimizer.step();
  }
  for (const auto& [name, tensor] : sharded->parameters()) {
    SCOPED_TRACE("parameter " + name);
    const auto& [range, whole] = ranges.at(name);
    expect_summary(summary(context, tensor, range, whole, replicated), reference["parameters"][name], 1e-5, 1e-5);
  }
}

void add(const std::string& name, const std::string& file, const std::string& model, const Sharding& sharding,
         std::vector<int64_t> worlds = {2, 4}) {
  add_case(
      __FILE__, __LINE__, "FullyShard", name,
      [=](RankContext& context) { same_as_fully_shard(context, file, model, sharding); }, std::move(worlds));
}

const bool added = [] {
  for (const std::string model : {"lm", "lm_tied"}) {
    for (const std::string strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
      add(model + "_" + strategy, model, model, by_layer({model, "Block"}, strategy));
    }
    const std::string traced = model == "lm" ? "lm_traced" : "lm_traced_tied";
    add(traced + "_full_shard", traced, model, by_layer({traced, "Block"}));
    Sharding per_parameter = by_layer({model, "Block"});
    per_parameter.layout = Layout::kPerParameter;
    add(model + "_per_parameter", model, model, per_parameter);
  }
  Sharding low = by_layer({"lm", "Block"});
  low.precision.param = DType::kBFloat16;
  add("Behaviour_G1_bfloat16", "lm", "lm_bfloat16", low, {2});
  low.layout = Layout::kPerParameter;
  add("Behaviour_G1_bfloat16_per_parameter", "lm", "lm_bfloat16", low, {2});
  return true;
}();

}  // namespace
}  // namespace fsdp2::testing
