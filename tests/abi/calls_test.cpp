// What the entries answer. Wrong arguments are in wrong_arguments_test.cpp.
#include <gtest/gtest.h>
#include <fsdp2/plugin.hpp>

#include "tests/abi/scratch.hpp"
#include "tests/abi/tiny_model.hpp"

namespace fsdp2::testing {
namespace {

constexpr const char* kConfig = "[fsdp]\nwrap = { policy = \"every\" }\n";

class Calls : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
  }

  Plugin plugin_ = Plugin::load(plugin_path());
};

TEST_F(Calls, TheCatalogueHasNamesAndHelp) {
  std::vector<std::string> names;
  for (const CatalogueEntry& strategy : plugin_.strategies()) {
    names.push_back(strategy.name);
    EXPECT_FALSE(strategy.help.empty()) << strategy.name;
  }
  for (const char* name : {"fsdp2.full_shard", "fsdp2.shard_grad_op", "fsdp2.no_shard"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  bool accelerate = false;
  for (const CatalogueEntry& dialect : plugin_.dialects()) accelerate |= dialect.name == "accelerate";
  EXPECT_TRUE(accelerate);
  EXPECT_EQ(plugin_.version(), "0.1.0");
}

TEST_F(Calls, AFaultInAFileHasItsPlaceAndTheNearestName) {
  const Scratch scratch;
  const std::string path = scratch.path("train.toml");
  write_file(path, "[fsdp]\n\n  strategi = \"full_shard\"\n");
  try {
    (void)plugin_.config_from_file(path);
    FAIL() << "read without a fault";
  } catch (const Exception& error) {
    EXPECT_EQ(error.code(), FSDP2_CONFIG);
    EXPECT_EQ(error.file, path);
    EXPECT_EQ(error.line, "3");
    EXPECT_EQ(error.column, "3");
    EXPECT_EQ(error.key, "strategi");
    EXPECT_EQ(error.nearest, "strategy");
    EXPECT_EQ(error.module, "");
    EXPECT_EQ(std::string(error.what()).rfind(path + ":3:3: ", 0), 0U) << error.what();
  }
}

TEST_F(Calls, OverridesWinAndOptionsReadBack) {
  const Configuration config = plugin_.config_from_text(kConfig, {"strategy=shard_grad_op", "debug.timeout_s=7"});
  const std::string toml = config.toml();
  EXPECT_NE(toml.find("shard_grad_op"), std::string::npos) << toml;
  EXPECT_EQ(plugin_.config_from_text(toml).toml(), toml);
  EXPECT_EQ(config.warning(), "");
}

TEST_F(Calls, WrongTensorsAreRefused) {
  const Configuration config = plugin_.config_from_text("[fsdp]\n");
  auto weight = at::ones({4, 4}).requires_grad_();
  EXPECT_THROW((void)plugin_.shard_tensors({}, config), Exception);
  EXPECT_THROW((void)plugin_.shard_tensors({{"a.weight", weight}}, config, {{"b"}}), Exception);
  EXPECT_EQ(weight.numel(), 16);
}

TEST_F(Calls, TensorsOfAHostAreWholeBetweenEnterAndExit) {
  auto weight = fill({4, 16}, 1).clone().requires_grad_();
  const at::Tensor plain = weight.detach().clone().requires_grad_();
  auto engine = plugin_.shard_tensors(
      {{"inner.weight", weight}}, plugin_.config_from_text("[fsdp]\ndebug.force_collectives = true\n"), {{"inner"}});
  const auto loss = [](const at::Tensor& w, const at::Tensor& x) {
    return (x.matmul(w.t()) * w.sum(1)).square().mean();
  };
  at::Tensor x = fill({3, 16}, 2);
  auto call = engine.enter("inner", x);
  at::Tensor y = loss(weight, x);
  call.exit(y);
  EXPECT_THROW(call.exit(y), Exception) << "a second time";
  y.backward();
  loss(plain, fill({3, 16}, 2)).backward();
  EXPECT_TRUE(at::allclose(weight.grad(), plain.grad()));
  EXPECT_NEAR(engine.gradient_norm(), plain.grad().norm().item<double>(), 1e-6);
  const auto parts = engine.geometry();
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_TRUE(parts[0].shard.is_same(weight)) << "the host's own tensor is the leaf";
  EXPECT_EQ(parts[0].shape, (std::vector<int64_t>{4, 16}));
  EXPECT_TRUE(at::equal(engine.gather_tensor("inner.weight", weight.grad()), weight.grad()));
  EXPECT_THROW((void)engine.gather_tensor("inner.weight", at::ones({3})), Exception);
  EXPECT_THROW((void)engine.enter("iner", x), Exception);
  engine.check_step();
  EXPECT_FALSE(engine.unscale_gradients(2));
  EXPECT_GT(engine.clip_gradient_norm(1e-3), 0);
  engine.clip_gradient_value(1);
  engine.zero_gradients();
  EXPECT_FALSE(weight.grad().defined());
  engine.detach();
  EXPECT_TRUE(at::equal(weight, plain));
}

TEST_F(Calls, ClippingIsWhatTheConfigurationSays) {
  const Scratch scratch;
  std::vector<std::string> log;
  const Plugin plugin = Plugin::load(plugin_path(), [&log](fsdp2_log_level level, const std::string& text) {
    log.push_back((level == FSDP2_LOG_WARNING ? "warning: " : "") + text);
  });
  const auto train = [&](const Configuration& config, bool calls) {
    log.clear();
    auto weight = fill({4, 16}, 1).clone().requires_grad_();
    const at::Tensor start = weight.detach().clone();
    Engine engine = plugin.shard_tensors({{"weight", weight}}, config);
    std::optional<double> norm;
    for (int64_t step = 0; step < 2; ++step) {
      at::Tensor x = fill({3, 16}, 2);
      auto call = engine.enter("", x);
      at::Tensor y = x.matmul(weight.t()).sum();
      call.exit(y);
      y.backward();
      if (calls) norm = engine.clip_gradients();
      const at::NoGradGuard no_grad;
      weight.sub_(weight.grad());
      engine.zero_gradients();
    }
    engine.detach();
    const double moved = (weight.detach() - start).norm().item<double>();
    return std::pair(norm, moved);
  };
  // The loss is linear: each step's gradient is the same.
  const double whole = fill({3, 16}, 2).sum(0).expand({4, 16}).norm().item<double>();
  write_file(scratch.path("ds.json"), "{\n\"gradient_clipping\": 0.125, \"zero_optimization\": {\"stage\": 3}}");
  write_file(scratch.path("train.toml"), "[fsdp]\ndialect = 'deepspeed'\nconfig = 'ds.json'\n");
  const Configuration file = plugin.config_from_file(scratch.path("train.toml"));
  const auto [norm, moved] = train(file, true);
  EXPECT_NEAR(norm.value_or(0), whole, 1e-5);
  EXPECT_NEAR(moved, 2 * 0.125, 1e-5);
  ASSERT_EQ(log.size(), 1U);
  EXPECT_EQ(
      log[0].rfind(scratch.path("ds.json") + ":2:22: `gradient.clip_norm = 0.125` (from `gradient_clipping`) takes "
                                             "effect by `engine.clip_gradients()`",
                   0),
      0U)
      << log[0];
  EXPECT_NEAR(train(file, false).second, 2 * whole, 1e-5);
  ASSERT_EQ(log.size(), 2U);
  EXPECT_EQ(log[1].rfind("warning: ", 0), 0U) << log[1];

  const auto [none, all] = train(plugin.config_from_text("[fsdp]\n"), true);
  EXPECT_EQ(none, std::nullopt);
  EXPECT_NEAR(all, 2 * whole, 1e-5);
  EXPECT_TRUE(log.empty()) << log[0];

  auto model = tiny_model();
  Engine engine = plugin.shard(model, plugin.config_from_text("[fsdp]\ngradient.clip_norm = 2\n"));
  ASSERT_EQ(log.size(), 1U);
  EXPECT_NE(log[0].find(":2:22: `gradient.clip_norm = 2.0` takes effect"), std::string::npos) << log[0];
  engine.detach();
}

TEST_F(Calls, AScriptedModuleHasNoEnter) {
  auto model = tiny_model();
  Engine engine = plugin_.shard(model, plugin_.config_from_text(kConfig));
  at::Tensor x = fill({2, 16}, 5);
  EXPECT_THROW((void)engine.enter("inner", x), Exception);
  engine.detach();
}

TEST_F(Calls, ATransportOfTheHost) {
  // One rank: what it sends is what it receives.
  struct Loopback {
    int calls = 0;
    static const char* move(void* self, void* output, const void* input, int64_t bytes, void*, void** request) {
      ++static_cast<Loopback*>(self)->calls;
      if (output != input) std::memcpy(output, input, static_cast<size_t>(bytes));
      *request = nullptr;
      return nullptr;
    }
    static const char* test(void*, void*, int32_t* done) {
      *done = 1;
      return nullptr;
    }
    static const char* broken(void*, void*, const void*, int64_t, void*, void**) { return "the cable is cut"; }
  } loopback;
  fsdp2_communicator table{};
  table.struct_size = sizeof(table);
  table.context = &loopback;
  table.world_size = 1;
  table.name = "loopback";
  table.all_gather = &Loopback::move;
  table.all_to_all = &Loopback::move;
  table.test = &Loopback::test;
  const Configuration config = plugin_.config_from_text("[fsdp]\ndebug.force_collectives = true\n");
  auto model = tiny_model();
  const at::Tensor input = fill({2, 16}, 5);
  const at::Tensor expected = model.forward({input}).toTensor();
  {
    Engine engine = plugin_.shard(model, config, table);
    const at::Tensor output = model.forward({input}).toTensor();
    EXPECT_TRUE(at::allclose(output, expected));
    output.sum().backward();
    EXPECT_GE(loopback.calls, 2) << "nothing went over the host's transport";
    engine.detach();
  }
  table.all_gather = &Loopback::broken;
  Engine engine = plugin_.shard(model, config, table);
  try {
    model.forward({input});
    FAIL() << "the fault was not reported";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the root unit: rank 0: all_gather of "), std::string::npos) << text;
    EXPECT_NE(text.find("the cable is cut"), std::string::npos) << text;
  }
  table.world_size = -1;
  EXPECT_THROW((void)plugin_.shard(model, config, table), Exception);
}

TEST_F(Calls, APlanNeedsNoRanks) {
  const auto model = tiny_model();
  const Configuration config = plugin_.config_from_text(kConfig);
  const std::string text = plugin_.plan_text(model, config, 16384);
  EXPECT_NE(text.find("inner"), std::string::npos) << text;
  EXPECT_THROW((void)plugin_.plan_text(model, config, 0), Exception);
}

TEST_F(Calls, TrainingThroughTheLibraryEqualsTrainingWithoutIt) {
  auto model = tiny_model();
  auto plain = tiny_model();
  const auto step = [](torch::jit::Module& module, const std::vector<at::Tensor>& parameters, int64_t s) {
    const at::Tensor loss = module.forward({fill({3, 16}, s)}).toTensor().square().mean();
    loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : parameters) {
      parameter.sub_(parameter.grad(), 0.1);
      parameter.mutable_grad().zero_();
    }
    return loss.item<float>();
  };
  std::vector<at::Tensor> plain_parameters;
  for (const at::Tensor& parameter : plain.parameters()) plain_parameters.push_back(parameter);

  Engine engine = plugin_.shard(model, plugin_.config_from_text(kConfig));
  const auto named = engine.named_parameters();
  ASSERT_EQ(named.size(), 4U);
  EXPECT_EQ(engine.world_size(), 1);
  EXPECT_EQ(engine.statistics().parameter_bytes, (16 * 24 + 24 + 24 * 4 + 4) * 4);
  EXPECT_NE(engine.plan_text().find("outer"), std::string::npos) << engine.plan_text();
  for (int64_t s = 0; s < 4; ++s) {
    EXPECT_NEAR(step(model, engine.parameters(), s), step(plain, plain_parameters, s), 2e-5);
  }
  {
    const Gathered gathered = engine.gather();
    const at::NoGradGuard guard;
    const at::Tensor x = fill({2, 16}, 3);
    EXPECT_LE((model.forward({x}).toTensor() - plain.forward({x}).toTensor()).abs().max().item<double>(), 1e-6);
    EXPECT_THROW(engine.detach(), Exception);
  }
  engine.gather().write_back();
  EXPECT_THROW(
      {
        Gathered gathered = engine.gather();
        (void)engine.gather();
      },
      Exception);
  engine.mark_written();
  engine.reset_statistics();
  EXPECT_EQ(engine.statistics().all_gathers, 0);
  engine.detach();
  const auto trained = plain.named_parameters();
  for (const auto& parameter : model.named_parameters()) {
    for (const auto& expected : trained) {
      if (expected.name != parameter.name) continue;
      EXPECT_TRUE(at::allclose(parameter.value, expected.value)) << parameter.name;
    }
  }
  EXPECT_THROW(engine.detach(), Exception);
}

}  // namespace
}  // namespace fsdp2::testing
