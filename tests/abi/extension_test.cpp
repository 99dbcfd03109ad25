// A strategy and an adapter from outside, through the library as a host has it. What they may do in full is in
// tests/unit/test_extensions.cpp.
#include <gtest/gtest.h>
#include <fsdp2/plugin.hpp>

#include "tests/abi/scratch.hpp"
#include "tests/abi/tiny_model.hpp"

namespace fsdp2::testing {
namespace {

class FromOutside : public ::testing::Test {
 protected:
  Configuration read(const std::string& body) const {
    return plugin_.config_from_text("[fsdp]\nplugins = ['" + beside_plugin("libabi_extension.so") + "']\n" + body);
  }

  Plugin plugin_ = Plugin::load(plugin_path());
};

TEST_F(FromOutside, AnAdapterAndAStrategyOfOneLibrary) {
  const Scratch scratch;
  const std::string file = scratch.path("host.txt");
  write_file(file, "key strategy 'zoo.obeys'\nkey strategy_options.does 'choose 1 1 2 0'\nold wind\n");
  const Configuration config = read("dialect = 'zoo'\nconfig = '" + file + "'\n");
  EXPECT_EQ(config.warning(), file + ": obsolete, to be removed: `wind` (line 3)");
  ASSERT_EQ(config.notes().size(), 1U);
  EXPECT_NE(config.notes()[0].find("registers strategy \"zoo.obeys\""), std::string::npos) << config.notes()[0];
  const auto model = tiny_model();
  const std::string plan = plugin_.plan_text(model, config, 2);
  EXPECT_EQ(plan.rfind("zoo.obeys, ", 0), 0U) << plan;
  EXPECT_EQ(plugin_.plan_text(model, plugin_.config_from_text(config.toml()), 2), plan) << "the TOML names all of it";
}

TEST_F(FromOutside, ItsPlanIsCheckedBeforeItRuns) {
  auto model = tiny_model();
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  const at::Tensor input = fill({2, 16}, 5);
  const at::Tensor before = model.forward({input}).toTensor();
  for (const auto& [does, fault] : {std::pair("choose 7 1", "it chose module 7, and there are 3, counted from 0"),
                                    {"choose 1 1 1 0", "it chose `inner` twice"},
                                    {"mesh 2 2", "it asked for a mesh of 2 x 2, and there are 1 ranks"},
                                    {"throw", "it threw an exception: out of paint"}}) {
    const Configuration config = read("strategy = 'zoo.obeys'\nstrategy_options.does = '" + std::string(does) + "'\n");
    try {
      (void)plugin_.shard(model, config);
      FAIL() << does;
    } catch (const Exception& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("strategy \"zoo.obeys\" (" + beside_plugin("libabi_extension.so") + "): " + fault),
                std::string::npos)
          << text;
    }
    EXPECT_TRUE(at::equal(model.forward({input}).toTensor(), before)) << "the module is as it was";
  }
}

}  // namespace
}  // namespace fsdp2::testing
