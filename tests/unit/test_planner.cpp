#include "plugin/wrap/planner.hpp"

#include "adapters/config.hpp"
#include "helpers.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::small_model;
using test::text_of;
using test::TreeBuilder;

TEST(Planner, FromTomlToAPlan) {
  const TreeBuilder model = small_model();
  const Config config =
      load_config_text("[fsdp]\nwrap.policy = 'transformer'\nwrap.layer_classes = ['Block']\n", "t.toml");
  const Plan plan = make_plan(model.tree(), config, 2);
  ASSERT_EQ(plan.units.size(), 3U);
  EXPECT_EQ(plan.units[0].path, "layers.0");
  EXPECT_EQ(plan.units[0].parent, 2U);
  EXPECT_EQ(plan.units[2].path, "");
  EXPECT_FALSE(plan.units[2].reshard_after_forward);
  EXPECT_EQ(parameter_bytes(plan), 4 * (80 + 2 * 280 + 90));
  EXPECT_EQ(plan.mesh, (Mesh{1, 2}));
}

TEST(Planner, ANumberOfRanksThatDoesNotFitIsRefusedWhereItIsWritten) {
  const Config config = load_config_text("[fsdp]\nreshard_after_forward = 3\n", "t.toml");
  EXPECT_STREQ(error_of([&] { make_plan(small_model().tree(), config, 4); }).what(),
               "t.toml:2:25: reshard_after_forward = 3, which does not divide the 4 ranks that shard a parameter; 1, 2 "
               "or 4 would");
}

TEST(Planner, IgnoredModulesStayWhole) {
  const auto plan_with = [](const std::string& patterns) {
    const Config config = load_config_text("[fsdp]\nignored_modules = [" + patterns + "]\n", "t.toml");
    return make_plan(small_model().tree(), config, 2);
  };
  const Plan whole = plan_with("");
  const Plan plan = plan_with(R"('layers\.0')");
  EXPECT_FALSE(plan.ignored_parameters.empty());
  for (const std::string& name : plan.ignored_parameters) EXPECT_TRUE(name.starts_with("layers.0.")) << name;
  EXPECT_EQ(plan.units.back().parameters.size() + plan.ignored_parameters.size(), whole.units.back().parameters.size());
  EXPECT_NE(to_table(plan).find("not sharded: \"" + plan.ignored_parameters.front() + "\""), std::string::npos);
  EXPECT_EQ(text_of([&] { plan_with("'layer'"); }),
            "t.toml:2:19: the whole of no module path matches `layer`; did you mean `layers`?");
  EXPECT_EQ(text_of([&] { plan_with("'.*'"); }), "t.toml:2:19: no parameter is left to shard");
  EXPECT_EQ(text_of([&] { plan_with("'(a'"); }).find("t.toml:2:19: `(a` is not a regular expression: "), 0U);
}

TEST(Planner, TheLayoutIsThatOfTheKey) {
  const Config config = load_config_text("[fsdp]\nlayout = 'per_parameter'\n", "t.toml");
  const Plan plan = make_plan(small_model().tree(), config, 3);
  EXPECT_EQ(plan.layout, "per_parameter");
  for (const PlannedParameter& parameter : plan.units[0].parameters) {
    const int64_t rows = (parameter.shape[0] + 2) / 3;
    EXPECT_EQ(shard_shape(parameter, shard_range(plan.units[0], parameter, 0))[0], rows) << parameter.name;
  }
  EXPECT_EQ(to_table(plan).find("fsdp2.full_shard, layout per_parameter, 3 ranks (1 x 3)\n"), 0U);
}

TEST(Planner, EveryElementBelongsToExactlyOneRank) {
  const TreeBuilder model = small_model();
  Fsdp2Options options;
  options.wrap.policy = WrapPolicy::kEvery;
  for (const Layout layout : {Layout::kRagged, Layout::kPerParameter}) {
    options.layout = layout;
    for (const int64_t world : {1, 2, 3, 4, 7, 64}) {
      const Plan plan = make_plan(model.tree(), options, world);
      for (const PlannedUnit& unit : plan.units) {
        for (const PlannedParameter& parameter : unit.parameters) {
          int64_t next = 0;
          for (int64_t rank = 0; rank < world; ++rank) {
            const ShardRange range = shard_range(unit, parameter, rank);
            EXPECT_EQ(range.begin, range.begin == range.end ? range.begin : next);
            EXPECT_EQ(numel(shard_shape(parameter, range)), range.end - range.begin);
            const int64_t offset = shard_offset(unit, parameter, rank);
            EXPECT_GE(offset, 0);
            EXPECT_LE(offset + range.end - range.begin, unit.buffers[parameter.buffer].part);
            next += range.end - range.begin;
          }
          EXPECT_EQ(next, numel(parameter.shape)) << parameter.name << ", " << world << " ranks";
        }
      }
    }
  }
}

TEST(Planner, OneRank) {
  const Plan plan = make_plan(small_model().tree(), Fsdp2Options{}, 1);
  EXPECT_EQ(plan.mesh, (Mesh{1, 1}));
  EXPECT_EQ(plan.units.size(), 1U);
}

TEST(Planner, AClassThatIsNotThereIsReportedWhereItWasWritten) {
  const Config config =
      load_config_text("[fsdp]\nwrap.policy = 'transformer'\nwrap.layer_classes = ['Blok']\n", "t.toml");
  const Error error = error_of([&] { make_plan(small_model().tree(), config, 2); });
  EXPECT_STREQ(error.what(),
               "t.toml:3:22: no module has the class `Blok`; the model has Block (2), Embedding (1), Linear (5), Model "
               "(1), ModuleList (1); did you mean `Block`?");
  EXPECT_EQ(error.details().line, 3);
  EXPECT_EQ(error.details().nearest, "Block");
}

TEST(Planner, NotesOfTheVisitorAreInThePlan) {
  TreeBuilder model = small_model();
  model.tie(0, model.tree().modules.size() - 1, "tied");
  Fsdp2Options options;
  options.wrap.policy = WrapPolicy::kEvery;
  EXPECT_EQ(make_plan(model.tree(), options, 2).notes.size(), 1U);
}

TEST(Planner, RefusesWhatIsNotBuilt) {
  Fsdp2Options options;
  options.version = 1;
  EXPECT_EQ(error_of([&] { make_plan(small_model().tree(), options, 2); }).details().key, "version");
  EXPECT_EQ(error_of([&] { make_plan(small_model().tree(), Fsdp2Options{}, 0); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Planner, ThePlaceOfAMeshThatDoesNotFitIsSaidOnce) {
  test::TreeBuilder tree;
  tree.parameter(0, "w", {8});
  const Config config = load_config_text("[fsdp]\nmesh.shard = 3\n", "a.toml");
  EXPECT_EQ(test::text_of([&] { make_plan(tree.tree(), config, 8); }),
            "a.toml:2:14: `mesh.shard = 3` does not divide the 8 ranks there are");
}

}  // namespace
}  // namespace fsdp2
