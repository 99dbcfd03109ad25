#include "plugin/wrap/auto_wrap.hpp"

#include <set>

#include "helpers.hpp"
#include "plugin/wrap/policies.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::small_model;
using test::TreeBuilder;

struct Result {
  std::vector<SelectedUnit> units;
  std::vector<std::string> notes;
};

Result select(const ModuleTree& tree, const WrapOptions& wrap) {
  Result result;
  result.units = select_units(tree, wrap, result.notes);
  // Whatever the policy: every parameter once, children before parents, the root last.
  std::multiset<size_t> owned;
  for (size_t i = 0; i < result.units.size(); ++i) {
    owned.insert(result.units[i].parameters.begin(), result.units[i].parameters.end());
    const bool is_root = i + 1 == result.units.size();
    EXPECT_EQ(result.units[i].parent.has_value(), !is_root);
    if (!is_root) {
      EXPECT_GT(*result.units[i].parent, i);
    }
  }
  EXPECT_EQ(result.units.back().module, 0U);
  EXPECT_EQ(owned.size(), tree.parameters.size());
  EXPECT_EQ(std::set<size_t>(owned.begin(), owned.end()).size(), tree.parameters.size());
  return result;
}

std::vector<std::string> paths(const ModuleTree& tree, const Result& result) {
  std::vector<std::string> list;
  for (const SelectedUnit& unit : result.units) list.push_back(tree.modules[unit.module].path);
  return list;
}

WrapOptions transformer(std::vector<std::string> classes) {
  return {WrapPolicy::kTransformer, std::move(classes), std::nullopt, {}};
}
WrapOptions modules(std::vector<std::string> patterns) {
  return {WrapPolicy::kModules, {}, std::nullopt, std::move(patterns)};
}
WrapOptions size(int64_t least) {
  return {WrapPolicy::kSize, {}, least, {}};
}
WrapOptions every() {
  return {WrapPolicy::kEvery, {}, std::nullopt, {}};
}

using Paths = std::vector<std::string>;

TEST(AutoWrap, None) {
  const TreeBuilder model = small_model();
  EXPECT_EQ(paths(model.tree(), select(model.tree(), {})), Paths{""});
}

TEST(AutoWrap, ByClass) {
  const TreeBuilder model = small_model();
  const Result result = select(model.tree(), transformer({"Block"}));
  EXPECT_EQ(paths(model.tree(), result), (Paths{"layers.0", "layers.1", ""}));
  EXPECT_EQ(result.units[0].parameters, (std::vector<size_t>{1, 2, 3, 4}));
  EXPECT_EQ(result.units[2].parameters, (std::vector<size_t>{0, 9, 10}));
  EXPECT_TRUE(result.notes.empty());
}

TEST(Behaviour_A15, NestedUnitsHaveParents) {
  const TreeBuilder model = small_model();
  const Result result = select(model.tree(), transformer({"Block", "Linear"}));
  // The blocks keep no parameter of their own, so they are dropped.
  EXPECT_EQ(paths(model.tree(), result),
            (Paths{"layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down", "head", ""}));
  TreeBuilder outer;
  const size_t block = outer.module(0, "block", "Block");
  outer.parameter(block, "scale", {8});
  const size_t inner = outer.module(block, "inner", "Linear");
  outer.parameter(inner, "weight", {8, 8});
  const Result nested = select(outer.tree(), transformer({"Block", "Linear"}));
  EXPECT_EQ(paths(outer.tree(), nested), (Paths{"block.inner", "block", ""}));
  EXPECT_EQ(nested.units[0].parent, 1U);
  EXPECT_EQ(nested.units[1].parent, 2U);
  EXPECT_TRUE(nested.units[2].parameters.empty());  // the root stays
}

TEST(AutoWrap, UnknownClass) {
  const TreeBuilder model = small_model();
  const Error error = error_of([&] { select(model.tree(), transformer({"Blok"})); });
  EXPECT_STREQ(error.what(),
               "no module has the class `Blok`; the model has Block (2), Embedding (1), Linear (5), Model (1), "
               "ModuleList (1); did you mean `Block`?");
  EXPECT_EQ(error.details().key, "wrap.layer_classes");
  EXPECT_EQ(error.details().nearest, "Block");
}

TEST(Behaviour_A27, AContainerClassIsRefused) {
  const TreeBuilder model = small_model();
  EXPECT_EQ(test::text_of([&] { select(model.tree(), transformer({"ModuleList"})); }),
            "the modules of class `ModuleList` are containers without a forward and cannot be units");
}

TEST(AutoWrap, ByPath) {
  const TreeBuilder model = small_model();
  EXPECT_EQ(paths(model.tree(), select(model.tree(), modules({"layers.*"}))), (Paths{"layers.0", "layers.1", ""}));
  EXPECT_EQ(paths(model.tree(), select(model.tree(), modules({"layers.1.*", "head"}))),
            (Paths{"layers.1.up", "layers.1.down", "head", ""}));
  EXPECT_EQ(paths(model.tree(), select(model.tree(), modules({"*"}))), (Paths{"embed", "head", ""}));
}

TEST(AutoWrap, PathsThatDoNotFit) {
  const TreeBuilder model = small_model();
  EXPECT_EQ(test::text_of([&] { select(model.tree(), modules({"layer.0"})); }),
            "no module path matches `layer.0` (`*` stands for any text without a dot); did you mean `layers.0`?");
  const Error error = error_of([&] { select(model.tree(), modules({"layers"})); });
  EXPECT_STREQ(error.what(),
               "`layers` is a container without a forward and cannot be a unit; name what it holds, for example "
               "`layers.*`");
  EXPECT_EQ(error.details().module, "layers");
}

TEST(AutoWrap, MatchesPath) {
  EXPECT_TRUE(matches_path("a.*.c", "a.b.c"));
  EXPECT_TRUE(matches_path("a.*", "a."));
  EXPECT_TRUE(matches_path("*", "abc"));
  EXPECT_TRUE(matches_path("l*r.*", "layer.0"));
  EXPECT_TRUE(matches_path("*a*b", "xaybab"));
  EXPECT_FALSE(matches_path("*", "a.b"));
  EXPECT_FALSE(matches_path("a.*", "a.b.c"));
  EXPECT_FALSE(matches_path("a.*", "a"));
  EXPECT_FALSE(matches_path("", "a"));
  EXPECT_FALSE(matches_path("*.x", "a.b.x"));
}

TEST(AutoWrap, BySize) {
  const TreeBuilder model = small_model();
  const std::vector<int64_t> counts = parameter_counts(model.tree());
  // up 16 * 8 + 16 = 144, down 8 * 16 + 8 = 136, a block 280, embed 80, head 90.
  EXPECT_EQ(counts[0], 80 + 2 * 280 + 90);
  EXPECT_EQ(paths(model.tree(), select(model.tree(), size(279))), (Paths{"layers.0", "layers.1", ""}));
  EXPECT_EQ(paths(model.tree(), select(model.tree(), size(280))), Paths{""});  // more than, not as many as
  EXPECT_EQ(paths(model.tree(), select(model.tree(), size(143))),
            (Paths{"layers.0.up", "layers.0", "layers.1.up", "layers.1", ""}));
  EXPECT_EQ(paths(model.tree(), select(model.tree(), size(0))), Paths{""});
}

TEST(AutoWrap, Every) {
  const TreeBuilder model = small_model();
  EXPECT_EQ(paths(model.tree(), select(model.tree(), every())),
            (Paths{"embed", "layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down", "head", ""}));
}

TEST(AutoWrap, ATiedWeightGoesToWhatEnclosesItsHolders) {
  TreeBuilder model = small_model();
  model.tie(0, model.tree().modules.size() - 1, "tied");  // embed.weight in head, too
  const Result result = select(model.tree(), every());
  EXPECT_EQ(result.units.back().parameters, std::vector<size_t>{0});
  EXPECT_EQ(result.notes, std::vector<std::string>{
                              "`embed.weight` (also `head.tied`) is used in `embed`, `head` and belongs to the root, "
                              "the innermost unit that encloses them"});
}

TEST(AutoWrap, ATiedWeightWithinAUnitStaysThere) {
  TreeBuilder model;
  const size_t block = model.module(0, "block", "Block");
  const size_t a = model.module(block, "a", "Linear");
  const size_t b = model.module(block, "b", "Linear");
  model.tie(model.parameter(a, "weight", {4, 4}), b, "weight");
  const Result result = select(model.tree(), transformer({"Block"}));
  EXPECT_EQ(paths(model.tree(), result), (Paths{"block", ""}));
  EXPECT_EQ(result.units[0].parameters, std::vector<size_t>{0});
  EXPECT_TRUE(result.notes.empty());
}

TEST(AutoWrap, AReaderOutsideTheHolderMovesAParameterUp) {
  TreeBuilder model;
  const size_t attention = model.module(0, "attention", "Attention");
  model.parameter(attention, "in", {4, 4});
  const size_t out = model.module(attention, "out_proj", "Linear");
  model.read_by(model.parameter(out, "weight", {4, 4}), attention);
  const Result result = select(model.tree(), every());
  EXPECT_EQ(paths(model.tree(), result), (Paths{"attention", ""}));
  EXPECT_EQ(result.units[0].parameters, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(result.notes, std::vector<std::string>{
                              "`attention.out_proj.weight` is used in `attention.out_proj`, `attention` and belongs to "
                              "`attention`, the innermost unit that encloses them"});
}

TEST(Behaviour_A16, OneObjectUnderTwoPathsIsOneUnit) {
  TreeBuilder model;
  const size_t a = model.module(0, "a", "Block");
  model.parameter(a, "w", {4});
  const size_t shared = model.module(a, "shared", "Linear");
  const size_t weight = model.parameter(shared, "weight", {4, 4});
  const size_t b = model.module(0, "b", "Block");
  model.parameter(b, "w", {4});
  const size_t again = model.module(b, "shared", "Linear", true, shared);
  model.tie(weight, again, "weight");
  const Result result = select(model.tree(), every());
  // Its parent encloses both uses, so it is the root although the first path lies in `a`.
  EXPECT_EQ(paths(model.tree(), result), (Paths{"a", "a.shared", "b", ""}));
  EXPECT_EQ(result.units[1].parent, 3U);
  EXPECT_EQ(result.units[1].parameters, std::vector<size_t>{weight});
  EXPECT_TRUE(result.notes.empty());
  // A path pattern that names the second path means the same object.
  EXPECT_EQ(paths(model.tree(), select(model.tree(), modules({"b.shared"}))), (Paths{"a.shared", ""}));
}

TEST(AutoWrap, WhatNothingCallsIsNoUnit) {
  TreeBuilder model;
  const size_t block = model.module(0, "block", "Block");
  const size_t scale = model.parameter(block, "scale", {8});
  const size_t spare = model.module(block, "spare", "Linear");
  const size_t weight = model.parameter(spare, "weight", {8, 8});
  const size_t inner = model.module(spare, "inner", "Linear");
  const size_t bias = model.parameter(inner, "bias", {8});
  const size_t empty = model.module(0, "empty", "Linear");
  for (const size_t module : {spare, inner, empty}) model.entry(module).called = false;
  const Result result = select(model.tree(), transformer({"Block", "Linear"}));
  EXPECT_EQ(paths(model.tree(), result), (Paths{"block", ""}));
  EXPECT_EQ(result.units[0].parameters, (std::vector<size_t>{scale, weight, bias}));
  EXPECT_EQ(result.notes,
            std::vector<std::string>{
                "no method of the model calls `block.spare`, so it is no unit: its parameters belong to `block`"});
}

TEST(AutoWrap, WhatIsCalledByOnePathIsAUnit) {
  TreeBuilder model;
  const size_t a = model.module(0, "a", "Linear");
  model.tie(model.parameter(a, "weight", {4, 4}), model.module(0, "b", "Linear", true, a), "weight");
  EXPECT_EQ(paths(model.tree(), select(model.tree(), modules({"b"}))), (Paths{"a", ""}));
}

TEST(AutoWrap, AFrozenModuleIsNoUnit) {
  TreeBuilder model = small_model();
  model.entry(model.module(0, "frozen", "Encoder")).frozen = CodePlace{"net.py", 12};
  const std::string text =
      "`frozen` was frozen by torch.jit.freeze (net.py, line 12): its parameters are constants, which cannot be "
      "sharded or trained; save it without freezing it";
  for (const WrapOptions& wrap : {transformer({"Encoder"}), modules({"frozen"}), modules({"*"})}) {
    const Error error = error_of([&] { select(model.tree(), wrap); });
    EXPECT_EQ(error.what(), text);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(error.details().module, "frozen");
    EXPECT_EQ(error.details().file, "net.py");
    EXPECT_EQ(error.details().line, 12);
  }
  const Result beside = select(model.tree(), every());
  EXPECT_EQ(beside.units.size(), 7U);
  EXPECT_EQ(beside.notes, std::vector<std::string>{text});
}

TEST(AutoWrap, AnEmptyTreeIsRefused) {
  EXPECT_EQ(test::text_of([] {
              std::vector<std::string> notes;
              select_units({}, {}, notes);
            }),
            "the model has no modules, not even a root");
}

}  // namespace
}  // namespace fsdp2
