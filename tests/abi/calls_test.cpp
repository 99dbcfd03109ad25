// What the entries answer: good values, and a status with code and details for every wrong argument.
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

  std::string error_of(fsdp2_status* status) {
    const std::string text = std::to_string(api_.status_code(status)) + " " + api_.status_message(status);
    api_.status_release(status);
    return text;
  }

  Plugin plugin_ = Plugin::load(plugin_path());
  const fsdp2_api& api_ = plugin_.api();
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
  EXPECT_EQ(api_.strategy_name(1000), nullptr);
  EXPECT_EQ(api_.dialect_help(1000), nullptr);
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

TEST_F(Calls, WrongArgumentsAreRefusedByName) {
  fsdp2_config* config = nullptr;
  fsdp2_config_args args{};
  EXPECT_EQ(error_of(api_.config_load(nullptr, &config)), "1 fsdp2_config_args is null");
  EXPECT_EQ(error_of(api_.config_load(&args, nullptr)), "1 out is null");
  EXPECT_EQ(error_of(api_.config_load(&args, &config)),
            "1 fsdp2_config_args.struct_size is 0, expected at least 40: set it to sizeof(fsdp2_config_args)");
  args.struct_size = sizeof(args);
  EXPECT_EQ(error_of(api_.config_load(&args, &config)), "1 fsdp2_config_args needs either path or text");
  args.text = kConfig;
  args.override_count = 1;
  EXPECT_EQ(error_of(api_.config_load(&args, &config)), "1 fsdp2_config_args.overrides is null");
  const char* nothing = nullptr;
  args.overrides = &nothing;
  EXPECT_EQ(error_of(api_.config_load(&args, &config)), "1 an entry of fsdp2_config_args.overrides is null");
  EXPECT_EQ(config, nullptr);
}

TEST_F(Calls, AStructOfANewerHostIsReadAsFarAsItIsKnown) {
  struct Newer {
    fsdp2_config_args known;
    uint64_t more[8];
  } args{};
  args.known.struct_size = sizeof(args);
  args.known.text = kConfig;
  args.more[0] = 1;
  fsdp2_config* config = nullptr;
  EXPECT_EQ(api_.config_load(&args.known, &config), nullptr);
  api_.config_release(config);
}

TEST_F(Calls, WrongCommunicatorsAreRefused) {
  auto model = tiny_model();
  fsdp2_config_args config_args{};
  config_args.struct_size = sizeof(config_args);
  config_args.text = kConfig;
  fsdp2_config* config = nullptr;
  ASSERT_EQ(api_.config_load(&config_args, &config), nullptr);
  fsdp2_shard_args args{};
  args.struct_size = sizeof(args);
  fsdp2_engine* engine = nullptr;
  EXPECT_EQ(error_of(api_.shard(&args, &engine)), "1 fsdp2_shard_args.config is null");
  args.config = config;
  EXPECT_EQ(error_of(api_.shard(&args, &engine)), "1 fsdp2_shard_args.module is null");
  args.module = &model;
  args.communicator_kind = 9;
  EXPECT_EQ(error_of(api_.shard(&args, &engine)),
            "1 fsdp2_shard_args.communicator_kind is 9, which this version does not know");
  args.communicator_kind = FSDP2_COMMUNICATOR_C10D_BACKEND;
  EXPECT_EQ(error_of(api_.shard(&args, &engine)), "1 fsdp2_shard_args.communicator is null");
  const c10::intrusive_ptr<c10d::Backend> null_backend;
  args.communicator = &null_backend;
  EXPECT_EQ(error_of(api_.shard(&args, &engine)), "1 the communicator is null: no c10d::Backend was given");
  args.communicator_kind = FSDP2_COMMUNICATOR_ENVIRONMENT;
  EXPECT_EQ(error_of(api_.shard(&args, &engine)),
            "1 fsdp2_shard_args.communicator is set, but communicator_kind does not say what it is");
  args.communicator = nullptr;
  args.backend = "carrier pigeon";
  EXPECT_EQ(error_of(api_.shard(&args, &engine)),
            "1 unknown backend \"carrier pigeon\": expected \"gloo\" or \"nccl\"");
  EXPECT_EQ(engine, nullptr);
  api_.config_release(config);
}

TEST_F(Calls, NullHandlesAreAnsweredWithoutACrash) {
  EXPECT_EQ(error_of(api_.engine_detach(nullptr)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_mark_written(nullptr)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_gather(nullptr)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_release_gathered(nullptr, 1)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_reset_statistics(nullptr)), "1 engine is null");
  double norm = 0;
  int32_t found = 0;
  at::Tensor tensor = at::ones({1});
  void* tensors[] = {&tensor};
  fsdp2_call* call = nullptr;
  EXPECT_EQ(error_of(api_.engine_gradient_norm(nullptr, 2, &norm)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_gradient_norm(nullptr, 2, nullptr)), "1 norm is null");
  EXPECT_EQ(error_of(api_.engine_clip_gradient_norm(nullptr, 1, 2, nullptr)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_clip_gradient_value(nullptr, 1)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_zero_gradients(nullptr)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_unscale_gradients(nullptr, 1, &found)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_check_step(nullptr)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_visit_geometry(nullptr, nullptr, nullptr)), "1 visitor is null");
  EXPECT_EQ(error_of(api_.engine_gather_tensor(nullptr, "a", &tensor, -1, &tensor)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_export_module(nullptr, "a", "b")), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_load_weights(nullptr, "a")), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_enter(nullptr, "", tensors, 1, &call)), "1 engine is null");
  EXPECT_EQ(error_of(api_.engine_enter(nullptr, "", tensors, 1, nullptr)), "1 out is null");
  EXPECT_EQ(error_of(api_.call_exit(nullptr, tensors, 1)), "1 call is null");
  api_.call_release(nullptr);
  EXPECT_STREQ(api_.engine_plan_text(nullptr), "");
  EXPECT_STREQ(api_.config_toml(nullptr), "");
  EXPECT_EQ(api_.config_note(nullptr, 0), nullptr);
  EXPECT_EQ(api_.status_code(nullptr), FSDP2_OK);
  EXPECT_STREQ(api_.status_message(nullptr), "");
  EXPECT_EQ(api_.status_detail(nullptr, "file"), nullptr);
  api_.engine_release(nullptr);
  api_.config_release(nullptr);
  api_.text_release(nullptr);
  api_.status_release(nullptr);
}

TEST_F(Calls, WrongTensorsAreRefused) {
  const Configuration config = plugin_.config_from_text("[fsdp]\n");
  auto weight = at::ones({4, 4}).requires_grad_();
  EXPECT_THROW((void)plugin_.shard_tensors({}, config), Exception);
  EXPECT_THROW((void)plugin_.shard_tensors({{"a.weight", weight}}, config, {{"b"}}), Exception);
  EXPECT_EQ(weight.numel(), 16);
  fsdp2_shard_tensors_args args{};
  fsdp2_engine* engine = nullptr;
  EXPECT_EQ(error_of(api_.shard_tensors(&args, &engine)),
            "1 fsdp2_shard_tensors_args.struct_size is 0, expected at least 80: set it to "
            "sizeof(fsdp2_shard_tensors_args)");
  args.struct_size = sizeof(args);
  EXPECT_EQ(error_of(api_.shard_tensors(&args, &engine)), "1 fsdp2_shard_tensors_args.config is null");
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
