#include "helpers.hpp"
#include "registry/registry.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::TreeBuilder;

struct Model {
  TreeBuilder builder;
  std::vector<SelectedUnit> units;
};

Model two_units() {
  Model model;
  const size_t block = model.builder.module(0, "block", "Block");
  const size_t weight = model.builder.parameter(block, "weight", {8, 4});
  model.builder.tie(weight, block, "alias");
  model.builder.parameter(0, "scale", {16}, DType::kBFloat16, false);
  model.units = {{block, 1, {0}}, {0, std::nullopt, {1}}};
  return model;
}

Plan plan_of(const Model& model, const char* name, Mesh mesh, const Fsdp2Options& options = {}) {
  return find_strategy(name)->make(model.builder.tree(), model.units, mesh, options);
}

std::vector<bool> reshards(const Plan& plan) {
  std::vector<bool> list;
  for (const PlannedUnit& unit : plan.units) list.push_back(unit.reshard_after_forward);
  return list;
}

TEST(Registry, NamesAndLookup) {
  ASSERT_EQ(strategies().size(), 5U);
  EXPECT_EQ(strategies()[0].name, "fsdp2.full_shard");
  EXPECT_EQ(strategies()[1].name, "fsdp2.shard_grad_op");
  EXPECT_EQ(strategies()[2].name, "fsdp2.hybrid_shard");
  EXPECT_EQ(strategies()[3].name, "fsdp2.hybrid_shard_zero2");
  EXPECT_EQ(strategies()[4].name, "fsdp2.no_shard");
  for (const Strategy& strategy : strategies()) EXPECT_EQ(find_strategy(strategy.name), &strategy);
  EXPECT_EQ(find_strategy("fsdp2.fullshard"), nullptr);
}

TEST(Strategies, FullShard) {
  Fsdp2Options options;
  options.debug = {0, true, 7, 5};
  const Plan plan = plan_of(two_units(), "fsdp2.full_shard", {1, 2}, options);
  EXPECT_EQ(plan.strategy, "fsdp2.full_shard");
  EXPECT_EQ(plan.layout, "ragged");
  EXPECT_EQ(plan.mesh, (Mesh{1, 2}));
  EXPECT_TRUE(plan.force_collectives);
  EXPECT_EQ(plan.check_steps, 5);
  EXPECT_EQ(reshards(plan), (std::vector<bool>{true, false}));
  const PlannedUnit block{
      "block", "Block", 1, true, {{DType::kFloat32, true, 16, 32}}, {{"block.weight", {"block.alias"}, {8, 4}, 0, 0}}};
  EXPECT_EQ(plan.units[0], block);
  const PlannedUnit root{
      "", "Model", {}, false, {{DType::kBFloat16, false, 8, 16, 0, DType::kBFloat16}}, {{"scale", {}, {16}, 0, 0}}};
  EXPECT_EQ(plan.units[1], root);
}

TEST(Strategies, HybridsShardInsideARow) {
  Fsdp2Options options;
  options.strategy = "hybrid_shard";
  options.mixed_precision.reduce = DType::kFloat32;
  options.gradient.divide_factor = 3;
  options.gradient.clip_norm = 0.5;
  options.load_mode = LoadMode::kBroadcast;
  const Plan plan = plan_of(two_units(), "fsdp2.hybrid_shard", {3, 2}, options);
  EXPECT_EQ(plan.strategy, "fsdp2.hybrid_shard");
  EXPECT_EQ(plan.mesh, (Mesh{3, 2}));
  EXPECT_EQ(reshards(plan), (std::vector<bool>{true, false}));
  EXPECT_EQ(plan.units[0].buffers[0].part, 16);
  EXPECT_EQ(plan.units[1].buffers[0].reduced, DType::kFloat32);
  EXPECT_EQ(plan.gradient_divisor, 3);
  EXPECT_EQ(plan.clip_norm, 0.5);
  EXPECT_EQ(plan.order_check, 3);
  EXPECT_TRUE(plan.broadcasts_values);
  options.strategy = "hybrid_shard_zero2";
  EXPECT_EQ(reshards(plan_of(two_units(), "fsdp2.hybrid_shard_zero2", {3, 2}, options)),
            (std::vector<bool>{false, false}));
}

TEST(Strategies, TrueReshardsTheRootToo) {
  Fsdp2Options options;
  options.reshard_after_forward = true;
  EXPECT_EQ(reshards(plan_of(two_units(), "fsdp2.full_shard", {1, 2}, options)), (std::vector<bool>{true, true}));
}

/// As PyTorch's: 1 is false, all is true, what does not divide is refused. It divides a row, not all ranks.
TEST(Strategies, ANumberOfRanksToReshardTo) {
  Fsdp2Options options;
  const auto plan_to = [&](int64_t ranks, Mesh mesh = {1, 4}) {
    options.reshard_after_forward = ranks;
    return plan_of(two_units(), mesh.replicate > 1 ? "fsdp2.hybrid_shard" : "fsdp2.full_shard", mesh, options);
  };
  const auto blocks = [](const Plan& plan) {
    return std::vector<int64_t>{plan.units[0].reshard_to, plan.units[1].reshard_to};
  };
  const Plan plan = plan_to(2);
  EXPECT_EQ(reshards(plan), (std::vector<bool>{true, true}));
  EXPECT_EQ(blocks(plan), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(blocks(plan_to(2, {2, 4})), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(reshards(plan_to(4)), (std::vector<bool>{true, true}));
  EXPECT_EQ(blocks(plan_to(4)), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(reshards(plan_to(1)), (std::vector<bool>{false, false}));
  EXPECT_EQ(plan_to(1).notes, std::vector<std::string>{
                                  "reshard_after_forward = 1 keeps units whole after forward, as shard_grad_op does"});
  EXPECT_EQ(blocks(plan_to(8, {1, 1})), (std::vector<int64_t>{0, 0})) << "nothing is sharded";
  const std::vector<std::pair<int64_t, Mesh>> refused{{3, {1, 4}}, {8, {1, 4}}, {-2, {1, 4}}, {8, {2, 4}}};
  for (const auto& [ranks, mesh] : refused) {
    const Error error = error_of([&, ranks = ranks, mesh = mesh] { plan_to(ranks, mesh); });
    EXPECT_EQ(error.what(), "reshard_after_forward = " + std::to_string(ranks) +
                                ", which does not divide the 4 ranks that shard a parameter; 1, 2 or 4 would");
    EXPECT_EQ(error.details().key, "reshard_after_forward");
  }
}

TEST(Strategies, MixedPrecisionCastsFloatingParametersOfAnotherDtype) {
  Fsdp2Options options;
  options.mixed_precision = {DType::kBFloat16, std::nullopt, DType::kFloat32, true};
  Model model = two_units();
  model.builder.parameter(0, "counts", {4}, DType::kInt64, false);
  model.units[1].parameters.push_back(2);
  const Plan plan = plan_of(model, "fsdp2.full_shard", {1, 2}, options);
  EXPECT_EQ(plan.units[0].buffers[0].cast, DType::kBFloat16);
  EXPECT_EQ(plan.units[1].buffers[0].cast, std::nullopt) << "stored in it";
  EXPECT_EQ(plan.units[1].buffers[1].cast, std::nullopt) << "integers";
  for (const PlannedUnit& unit : plan.units) {
    EXPECT_EQ(unit.inputs_cast, DType::kBFloat16);
    EXPECT_EQ(unit.outputs_cast, DType::kFloat32);
  }
  options.mixed_precision.cast_forward_inputs = false;
  EXPECT_EQ(plan_of(two_units(), "fsdp2.no_shard", {1, 2}, options).units[0].inputs_cast, std::nullopt);
}

TEST(Strategies, PerParameterCutsEachInItsRows) {
  Fsdp2Options options;
  options.layout = Layout::kPerParameter;
  const Plan plan = plan_of(two_units(), "fsdp2.full_shard", {1, 3}, options);
  EXPECT_EQ(plan.layout, "per_parameter");
  // 8 rows of 4 over 3 ranks: 3, 3 and 2.
  EXPECT_EQ(plan.units[0].buffers, (std::vector<PlannedBuffer>{{DType::kFloat32, true, 12, 32}}));
  EXPECT_EQ(plan.units[0].parameters[0],
            (PlannedParameter{"block.weight", {"block.alias"}, {8, 4}, 0, 0, PlannedChunk{0, 12}}));
  options.layout = Layout::kFlat;
  EXPECT_EQ(error_of([&] {
              plan_of(two_units(), "fsdp2.full_shard", {1, 3}, options);
            }).code(),
            ErrorCode::kUnsupported);
}

TEST(Strategies, ShardGradOpKeeps) {
  const Plan plan = plan_of(two_units(), "fsdp2.shard_grad_op", {1, 2});
  EXPECT_EQ(reshards(plan), (std::vector<bool>{false, false}));
  EXPECT_EQ(plan.mesh, (Mesh{1, 2}));
}

TEST(Strategies, NoShardReplicates) {
  const Plan plan = plan_of(two_units(), "fsdp2.no_shard", {1, 4});
  EXPECT_EQ(plan.mesh, (Mesh{4, 1}));
  EXPECT_EQ(reshards(plan), (std::vector<bool>{false, false}));
  EXPECT_EQ(plan.units[0].buffers[0].part, 32);
}

TEST(Strategies, AParameterWithoutDimensionsIsRefused) {
  Model model;
  model.builder.parameter(0, "temperature", {});
  model.units = {{0, std::nullopt, {0}}};
  const Error error = error_of([&] { plan_of(model, "fsdp2.full_shard", {1, 2}); });
  EXPECT_STREQ(
      error.what(),
      "parameter `temperature` has no dimensions and cannot be cut: make it a tensor of one dimension with one "
      "element");
  EXPECT_EQ(error.details().parameter, "temperature");
}

}  // namespace
}  // namespace fsdp2
