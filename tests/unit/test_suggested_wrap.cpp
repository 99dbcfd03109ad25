#include "plugin/wrap/suggested_wrap.hpp"

#include "adapters/config.hpp"
#include "helpers.hpp"
#include "plugin/wrap/planner.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2 {
namespace {

using test::small_model;
using test::TreeBuilder;

using Names = std::vector<std::string>;

std::vector<std::string> all_fit(const ModuleTree& tree) {
  return std::vector<std::string>(tree.modules.size());
}

/// What is suggested; checks that its TOML, pasted into a file, gives the plan that was promised.
SuggestedWrap suggest(const ModuleTree& tree, const std::vector<std::string>& unfit) {
  const auto found = suggest_wrap(tree, repeated_classes(tree, unfit), unfit);
  EXPECT_TRUE(found.has_value());
  if (!found) return {};
  const std::string toml = "[fsdp]\nstrategy = 'full_shard'\n\n" + wrap_to_toml(found->wrap);
  const Config config = load_config_text(toml, "t.toml");
  EXPECT_EQ(config.options.wrap, found->wrap) << toml;
  EXPECT_EQ(make_plan(tree, config, SuggestedWrap::kRanks), found->plan) << toml;
  return *found;
}
SuggestedWrap suggest(const ModuleTree& tree) {
  return suggest(tree, all_fit(tree));
}

const RepeatedClass* find(const std::vector<RepeatedClass>& repeated, const std::string& name) {
  for (const RepeatedClass& each : repeated) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

/// A layer of two linear modules, by name.
size_t add_layer(TreeBuilder& builder, size_t parent, const std::string& name, const std::string& class_name,
                 int64_t width = 16) {
  const size_t layer = builder.module(parent, name, class_name);
  for (const char* part : {"up", "down"}) {
    builder.parameter(builder.module(layer, part, "Linear"), "weight", {width, width});
  }
  return layer;
}

TEST(SuggestedWrap, ClassesThatRepeat) {
  const TreeBuilder model = small_model();
  const auto repeated = repeated_classes(model.tree(), all_fit(model.tree()));
  ASSERT_EQ(repeated.size(), 2U);  // one ModuleList and one Embedding repeat nothing
  EXPECT_EQ(repeated[0].name, "Linear");
  EXPECT_EQ(repeated[0].modules.size(), 5U);
  EXPECT_EQ(repeated[0].least, 10 * 8 + 10);
  EXPECT_EQ(repeated[0].most, 16 * 8 + 16);
  EXPECT_EQ(repeated[0].parameters, 2 * (16 * 8 + 16 + 8 * 16 + 8) + 10 * 8 + 10);
  EXPECT_FALSE(repeated[0].is_numbered);
  EXPECT_EQ(repeated[1].name, "Block");
  EXPECT_EQ(repeated[1].parameters, 2 * (16 * 8 + 16 + 8 * 16 + 8));
  EXPECT_TRUE(repeated[1].is_numbered);
  EXPECT_TRUE(repeated[1].holds_modules);
  EXPECT_EQ(repeated[1].why_not, "");
}

TEST(SuggestedWrap, ATiedParameterCountsOnce) {
  TreeBuilder model;
  const size_t a = model.module(0, "a", "Linear");
  const size_t b = model.module(0, "b", "Linear");
  model.tie(model.parameter(a, "weight", {4, 4}), b, "weight");
  const auto repeated = repeated_classes(model.tree(), all_fit(model.tree()));
  ASSERT_EQ(repeated.size(), 1U);
  EXPECT_EQ(repeated[0].parameters, 16);
}

TEST(SuggestedWrap, LayersAndNotTheirParts) {
  const SuggestedWrap found = suggest(small_model().tree());
  EXPECT_EQ(found.wrap.policy, WrapPolicy::kTransformer);
  EXPECT_EQ(found.wrap.layer_classes, Names{"Block"});
  EXPECT_EQ(found.plan.units.size(), 3U);
  EXPECT_EQ(found.why, "2 modules of class Block hold 76.7 % of the parameters.");  // 560 of 730
}

/// Units in one another are whole together: nothing is gained by the class.
TEST(SuggestedWrap, AClassThatNestsInItself) {
  TreeBuilder model;
  size_t holder = 0;
  for (int i = 0; i < 6; ++i) {
    holder = model.module(holder, "inner", "Deep");
    model.parameter(holder, "w", {8, 8});
  }
  EXPECT_NE(suggest(model.tree()).wrap.policy, WrapPolicy::kTransformer);
}

TEST(SuggestedWrap, NoParametersNoSuggestion) {
  const TreeBuilder model;
  EXPECT_FALSE(suggest_wrap(model.tree(), {}, all_fit(model.tree())).has_value());
}

TEST(SuggestedWrap, EncoderAndDecoderLayersBoth) {
  TreeBuilder model;
  for (const char* side : {"Encoder", "Decoder"}) {
    const size_t stack = model.module(0, side, "Stack");
    const size_t layers = model.module(stack, "layers", "ModuleList", false);
    const std::string layer = std::string(side) + "Layer";
    for (const char* name : {"0", "1", "2"}) add_layer(model, layers, name, layer, layer[0] == 'E' ? 16 : 32);
  }
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, (Names{"DecoderLayer", "EncoderLayer"}));
}

/// As in T5: two stacks of a class, with layers of one class.
TEST(SuggestedWrap, LayersAndNotTheStacksAroundThem) {
  TreeBuilder model;
  for (const char* side : {"encoder", "decoder"}) {
    const size_t block = model.module(model.module(0, side, "Stack"), "block", "ModuleList", false);
    for (const char* name : {"0", "1", "2"}) add_layer(model, block, name, "Block");
  }
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, Names{"Block"});
}

TEST(SuggestedWrap, BlocksOfDifferentSizesInsideSequentials) {
  TreeBuilder model("ResNet");
  model.parameter(model.module(0, "conv1", "Conv2d"), "weight", {8, 3, 7, 7});
  int64_t width = 8;
  for (const char* stage : {"layer1", "layer2", "layer3", "layer4"}) {
    const size_t sequential = model.module(0, stage, "Sequential");
    for (const char* name : {"0", "1"}) {
      const size_t block = add_layer(model, sequential, name, "Bottleneck", width);
      if (name[0] == '0') {
        const size_t downsample = model.module(block, "downsample", "Sequential");
        model.parameter(model.module(downsample, "0", "Conv2d"), "weight", {width, width, 1, 1});
      }
    }
    width *= 2;
  }
  model.parameter(model.module(0, "fc", "Linear"), "weight", {10, width});
  const SuggestedWrap found = suggest(model.tree());
  EXPECT_EQ(found.wrap.layer_classes, Names{"Bottleneck"});
  EXPECT_EQ(found.plan.units.size(), 9U);
}

TEST(SuggestedWrap, BlocksAndNotTheExpertsInThem) {
  TreeBuilder model;
  const size_t layers = model.module(0, "layers", "ModuleList", false);
  for (const char* name : {"0", "1", "2"}) {
    const size_t block = add_layer(model, layers, name, "MoeBlock", 8);
    const size_t experts = model.module(block, "experts", "ModuleList", false);
    for (const char* expert : {"0", "1", "2", "3"}) add_layer(model, experts, expert, "Expert", 32);
  }
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, Names{"MoeBlock"});
}

TEST(SuggestedWrap, ASequentialOfLinears) {
  TreeBuilder model("Sequential");
  for (const char* name : {"0", "2", "4", "6"}) model.parameter(model.module(0, name, "Linear"), "weight", {32, 32});
  const SuggestedWrap found = suggest(model.tree());
  EXPECT_EQ(found.wrap.layer_classes, Names{"Linear"});
  EXPECT_EQ(found.plan.units.size(), 5U);  // the root has no parameters of its own, but is always a unit
}

TEST(SuggestedWrap, LayersThatHoldTheirParametersThemselves) {
  TreeBuilder model;
  const size_t layers = model.module(0, "layers", "ModuleList", false);
  for (const char* name : {"0", "1", "2", "3"}) {
    model.parameter(model.module(layers, name, "Mixer"), "weight", {32, 32});
  }
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, Names{"Mixer"});
}

TEST(SuggestedWrap, LayersUnderNamesWithoutNumbers) {
  TreeBuilder model;
  for (const char* name : {"first", "second", "third", "fourth"}) add_layer(model, 0, name, "Layer");
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, Names{"Layer"});
}

/// With the table in a unit of its own the root keeps next to nothing.
TEST(SuggestedWrap, ALargeTableBesideTheLayers) {
  TreeBuilder model;
  model.parameter(model.module(0, "words", "Embedding"), "weight", {512, 16});
  model.parameter(model.module(0, "places", "Embedding"), "weight", {32, 16});
  const size_t layers = model.module(0, "layers", "ModuleList", false);
  for (int i = 0; i < 12; ++i) add_layer(model, layers, std::to_string(i), "Block");
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, (Names{"Embedding", "Block"}));
}

/// Of linear modules only the head lies outside of the layers: as a class they would be units inside the layers too.
TEST(SuggestedWrap, SmallLayersBesideALargeTableAndHead) {
  TreeBuilder model;
  model.parameter(model.module(0, "embed", "Embedding"), "weight", {1000, 16});
  const size_t layers = model.module(0, "layers", "ModuleList", false);
  for (int i = 0; i < 8; ++i) add_layer(model, layers, std::to_string(i), "Block");
  model.parameter(model.module(0, "head", "Linear"), "weight", {1000, 16});
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, Names{"Block"});  // 11 % of the parameters
}

TEST(SuggestedWrap, PartsBesideTheLayersAndNotWhatIsAroundBoth) {
  TreeBuilder model;
  for (const char* name : {"fast", "slow"}) {
    const size_t net = model.module(0, name, "Net");
    const size_t encoder = model.module(net, "encoder", "Sequential");
    for (const char* layer : {"0", "1", "2", "3"}) add_layer(model, encoder, layer, "Block");
    add_layer(model, net, "decoder", "Decoder", 32);
  }
  EXPECT_EQ(suggest(model.tree()).wrap.layer_classes, (Names{"Block", "Decoder"}));
}

/// Nothing repeats: six parts of different classes.
TEST(SuggestedWrap, UnitsBySizeWhereNothingRepeats) {
  TreeBuilder model;
  for (const char* name : {"A", "B", "C", "D", "E", "F"}) {
    model.parameter(model.module(0, name, name), "weight", {64, 64});
  }
  const SuggestedWrap found = suggest(model.tree());
  EXPECT_EQ(found.wrap.policy, WrapPolicy::kSize);
  ASSERT_TRUE(found.wrap.min_num_params.has_value());
  EXPECT_LT(*found.wrap.min_num_params, 64 * 64);
  EXPECT_EQ(found.plan.units.size(), 7U);
  EXPECT_LT(whole_share(found.plan), 0.9);
}

TEST(SuggestedWrap, OneUnitWhereASplitGainsNothing) {
  TreeBuilder model;
  model.parameter(model.module(0, "table", "Embedding"), "weight", {1000, 64});
  model.parameter(model.module(0, "head", "Linear"), "weight", {64, 2});
  const SuggestedWrap found = suggest(model.tree());
  EXPECT_EQ(found.wrap.policy, WrapPolicy::kNone);
  EXPECT_EQ(found.plan.units.size(), 1U);
  EXPECT_DOUBLE_EQ(whole_share(found.plan), 1.0);
}

TEST(SuggestedWrap, ClassesThatCannotBeUnits) {
  TreeBuilder model;
  const size_t layers = model.module(0, "layers", "ModuleList", false);
  std::vector<size_t> blocks;
  for (const char* name : {"0", "1", "2", "3"}) blocks.push_back(add_layer(model, layers, name, "Block"));
  const auto why_not = [&](const std::vector<std::string>& unfit) {
    const auto repeated = repeated_classes(model.tree(), unfit);
    return find(repeated, "Block")->why_not;
  };
  std::vector<std::string> forked = all_fit(model.tree());
  forked[blocks[2]] = "runs inside torch.jit.fork";
  EXPECT_EQ(why_not(forked), "runs inside torch.jit.fork");
  EXPECT_EQ(suggest(model.tree(), forked).wrap.layer_classes, Names{});

  for (const size_t block : blocks) model.entry(block).has_forward = false;
  EXPECT_EQ(why_not(all_fit(model.tree())), "containers without a forward");
  for (const size_t block : blocks) {
    model.entry(block).has_forward = true;
    model.entry(block).called = false;
  }
  EXPECT_EQ(why_not(all_fit(model.tree())), "no method calls them");
  model.entry(blocks[0]).called = true;
  EXPECT_EQ(why_not(all_fit(model.tree())), "only one of them is called");
  for (const size_t block : blocks) model.entry(block).called = true;
  const size_t constant = model.module(0, "frozen", "Block");
  model.entry(constant).frozen = CodePlace{};
  EXPECT_EQ(why_not(all_fit(model.tree())), "one of them is frozen");
}

/// Shapes stay as they are in the model; the plan counts a parameter without dimensions as one element.
TEST(SuggestedWrap, AParameterWithoutDimensionsIsNoHindrance) {
  TreeBuilder model = small_model();
  model.parameter(0, "scale", {});
  const auto unfit = all_fit(model.tree());
  const auto found = suggest_wrap(model.tree(), repeated_classes(model.tree(), unfit), unfit);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->wrap.layer_classes, Names{"Block"});
}

}  // namespace
}  // namespace fsdp2
