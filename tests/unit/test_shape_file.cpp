#include <gtest/gtest.h>

#include <chrono>

#include "plugin/cli/shape_file.hpp"
#include "tests/unit/helpers.hpp"

namespace fsdp2::cli {
namespace {

ModuleTree read(const std::string& toml) {
  return read_shapes(toml, "shapes.toml");
}

const TreeModule& module_at(const ModuleTree& tree, const std::string& path) {
  for (const TreeModule& module : tree.modules) {
    if (module.path == path) return module;
  }
  ADD_FAILURE() << "no module " << path;
  return tree.modules.front();
}

TEST(ShapeFile, ModulesInPreOrderWithWhatLiesOnTheWay) {
  const ModuleTree tree = read(R"(
dtype = "bfloat16"
[[module]]
path = "layers.{0..1}"
class = "Layer"
parameters = { "attention.q.weight" = [8, 4], norm.weight = [4] }
[[module]]
path = ""
class = "Net"
parameters = { bias = [3] }
[[module]]
path = "head"
class = "Linear"
dtype = "float32"
trainable = false
parameters.weight = [7, 4]
)");
  std::vector<std::string> modules;
  for (const TreeModule& module : tree.modules) modules.push_back(module.path + ":" + module.class_name);
  EXPECT_EQ(modules, (std::vector<std::string>{":Net", "layers:ModuleList", "layers.0:Layer",
                                               "layers.0.attention:Module", "layers.0.attention.q:Module",
                                               "layers.0.norm:Module", "layers.1:Layer", "layers.1.attention:Module",
                                               "layers.1.attention.q:Module", "layers.1.norm:Module", "head:Linear"}));
  EXPECT_FALSE(module_at(tree, "layers").has_forward);
  EXPECT_TRUE(module_at(tree, "layers.1").has_forward);
  EXPECT_EQ(tree.modules[*module_at(tree, "layers.1.attention.q").parent].path, "layers.1.attention");
  ASSERT_EQ(tree.parameters.size(), 6U);
  EXPECT_EQ(tree.parameters[0].names, std::vector<std::string>{"bias"});
  EXPECT_EQ(tree.parameters[1].names, std::vector<std::string>{"layers.0.attention.q.weight"});
  EXPECT_EQ(tree.parameters[1].shape, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(tree.parameters[1].dtype, DType::kBFloat16);
  EXPECT_EQ(tree.parameters[5].dtype, DType::kFloat32);
  EXPECT_FALSE(tree.parameters[5].trainable);
  EXPECT_EQ(tree.parameters[5].holders, tree.parameters[5].readers);
}

TEST(ShapeFile, RangesMultiply) {
  const ModuleTree tree = read(R"(
[[module]]
path = "layers.{0..2}.experts.{8..9}"
parameters.w = [2]
)");
  EXPECT_EQ(tree.parameters.size(), 6U);
  EXPECT_EQ(tree.parameters.back().names.front(), "layers.2.experts.9.w");
}

TEST(ShapeFile, TiedParametersAreOne) {
  const ModuleTree tree = read(R"(
[[module]]
path = "head"
tied.weight = "embed.weight"
[[module]]
path = "embed"
parameters.weight = [10, 4]
)");
  ASSERT_EQ(tree.parameters.size(), 1U);
  EXPECT_EQ(tree.parameters[0].names, (std::vector<std::string>{"embed.weight", "head.weight"}));
  EXPECT_EQ(tree.parameters[0].holders.size(), 2U);
}

TEST(ShapeFile, FaultsHaveAPlaceAndTheNearestName) {
  const std::string head = "[[module]]\npath = \"a\"\n";
  const auto fault = [&](const std::string& toml) { return test::text_of([&] { read(toml); }); };
  EXPECT_EQ(fault("[[module]\n").substr(0, 35), "shapes.toml:1:10: this is not TOML:");
  EXPECT_EQ(fault("dtyp = 1\n"),
            "shapes.toml:1:1: a shape file has no key `dtyp`; it has \"dtype\", \"module\"; did you mean `dtype`?");
  EXPECT_NE(fault("dtype = \"bfloat\"\n").find("shapes.toml:1:9: `dtype = \"bfloat\"` is no dtype"), std::string::npos);
  EXPECT_NE(fault("dtype = 16\n").find("1:9: `dtype` must be the name of a dtype"), std::string::npos);
  EXPECT_NE(fault("").find("shapes.toml: a shape file has a table [[module]]"), std::string::npos);
  EXPECT_NE(fault("module = []").find("1:10: a shape file has a table [[module]]"), std::string::npos);
  EXPECT_NE(fault("[[module]]\nclass = \"A\"\n").find("1:1: this [[module]] has no `path`"), std::string::npos);
  EXPECT_NE(fault(head).find("no module has `parameters`"), std::string::npos);
  EXPECT_NE(fault(head + "shape = [1]").find("3:1: a shape file has no key `module.shape`"), std::string::npos);
  EXPECT_NE(fault(head + "parameter.w = [1]").find("did you mean `parameters`?"), std::string::npos);
  EXPECT_NE(fault(head + "parameters = [1]").find("3:14: `module.parameters` must be a table"), std::string::npos);
  for (const char* shape : {"[]", "[0]", "[-4]", "[1.5]", "4", "\"4\"", "[[4]]"}) {
    EXPECT_NE(fault(head + "parameters.w = " + shape).find("3:16: `module.parameters.w` must be a shape"),
              std::string::npos)
        << shape;
  }
  EXPECT_NE(fault(head + "parameters.w = [4611686018427387904, 4]").find("more elements than any model"),
            std::string::npos);
  // Elements that can be counted, bytes of training that cannot.
  EXPECT_NE(fault(head + "parameters.w = [16384, 17592186044416]").find("more elements than any model"),
            std::string::npos);
  EXPECT_NE(fault(head + "parameters.w = [1]\n" + head).find("5:8: module `a` is there already, from line 2"),
            std::string::npos);
  EXPECT_NE(fault(head + "parameters = { \"w\" = [1] }\ntied = { w = \"a.w\" }").find("parameter `w` is there twice"),
            std::string::npos);
  EXPECT_NE(fault(head + "parameters.w = [1]\ntied.v = \"a.u\"")
                .find("which is no parameter of the file; did you mean `a.w`?"),
            std::string::npos);
  EXPECT_NE(fault(head + "parameters.w = [1]\ntied.v = \"a.w\"\ntied.u = \"a.v\"")
                .find("`a.v`, which is itself tied, to `a.w`: name the parameter that has the shape"),
            std::string::npos);
  for (const char* path : {"a.{0}", "a.{0..", "a.{2..1}", "a.{x..2}", "a.{0..99999999999999999999}", "a.{0..1e9}",
                           "a.{0..999999}.{0..999999}"}) {
    const std::string text = fault(std::string("[[module]]\npath = \"") + path + "\"\nparameters.w = [1]");
    EXPECT_TRUE(text.starts_with("shapes.toml:2:8: ")) << text;
  }
  std::string deep = "a";
  std::string ranges = "{0..0}";
  for (int i = 0; i < 10'000; ++i) {
    deep += ".a";
    ranges += "{0..0}";
  }
  for (const std::string& path : {deep, ranges}) {
    EXPECT_NE(fault("[[module]]\npath = \"" + path + "\"").find("a path of more than 512 characters"),
              std::string::npos);
    EXPECT_NE(fault(head + "parameters.\"" + path + "\" = [1]").find("more than 512 characters"), std::string::npos);
  }
  for (const char* path : {".", "a..b", "a."}) {
    EXPECT_TRUE(fault(std::string("[[module]]\npath = \"") + path + "\"").starts_with("shapes.toml:2:8: ")) << path;
  }
}

/// In time that grows with their number alone.
TEST(ShapeFile, ManyParametersInOneModule) {
  std::string text = "[[module]]\npath = \"a.{0..9}\"\n";
  for (int i = 0; i < 20'000; ++i) text += "parameters.p" + std::to_string(i) + " = [1]\n";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read(text).parameters.size(), 200'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));  // two where nothing else runs
}

}  // namespace
}  // namespace fsdp2::cli
