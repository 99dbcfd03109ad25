// Every entry of the table with what a host may get wrong: null, sizes, handles that were released or are of another
// kind, tags. A status and no crash.
#include <gtest/gtest.h>
#include <fsdp2/plugin.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>
#include <limits>
#include <set>

#include "tests/abi/scratch.hpp"
#include "tests/abi/tiny_model.hpp"

namespace fsdp2::testing {
namespace {

constexpr const char* kText = "[fsdp]\nwrap = { policy = \"every\" }\n";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const char* const kDead = " is no live handle: it was released, or is of another kind";

template <typename Args>
Args sized() {
  Args args{};
  args.struct_size = sizeof(args);
  return args;
}

class WrongArguments : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    config_ = load_config();
  }
  void TearDown() override { api_.config_release(config_); }

  /// Code and text, "0 " for success.
  std::string text_of(fsdp2_status* status) {
    const std::string text = std::to_string(api_.status_code(status)) + " " + api_.status_message(status);
    api_.status_release(status);
    return text;
  }

  fsdp2_config* load_config() {
    auto args = sized<fsdp2_config_args>();
    args.text = kText;
    fsdp2_config* config = nullptr;
    EXPECT_EQ(text_of(api_.config_load(&args, &config)), "0 ");
    return config;
  }

  fsdp2_shard_args shard_args() {
    auto args = sized<fsdp2_shard_args>();
    args.config = config_;
    args.module = &model_;
    return args;
  }

  fsdp2_shard_tensors_args shard_tensors_args() {
    auto args = sized<fsdp2_shard_tensors_args>();
    args.config = config_;
    args.names = &name_;
    args.tensors = &tensor_;
    args.count = 1;
    return args;
  }

  fsdp2_engine* shard_tensors() {
    weight_ = new_weight();  // an engine that ends without detach leaves a shard
    const auto args = shard_tensors_args();
    fsdp2_engine* engine = nullptr;
    EXPECT_EQ(text_of(api_.shard_tensors(&args, &engine)), "0 ");
    return engine;
  }

  fsdp2_call* enter(fsdp2_engine* engine) {
    fsdp2_call* call = nullptr;
    EXPECT_EQ(text_of(api_.engine_enter(engine, "", tensors_, 1, &call)), "0 ");
    return call;
  }

  /// An entry that takes an engine and returns a status.
  struct EngineEntry {
    const void* entry;
    const char* name;
    std::function<fsdp2_status*(fsdp2_engine*)> call;  // all else is right
    fsdp2_code after_detach;
  };
  template <typename Handle, typename... Parameters, typename... Arguments>
  static EngineEntry entry(const char* name, fsdp2_status* (*entry)(Handle*, Parameters...), fsdp2_code after_detach,
                           Arguments... arguments) {
    const auto call = [=](fsdp2_engine* engine) { return entry(engine, arguments...); };
    return {reinterpret_cast<const void*>(entry), name, call, after_detach};
  }
  std::vector<EngineEntry> engine_entries() {
    constexpr fsdp2_code kOk = FSDP2_OK;
    constexpr fsdp2_code kMoment = FSDP2_FAILED_PRECONDITION;
    const fsdp2_api& a = api_;
    return {
        entry("detach", a.engine_detach, kMoment),
        entry("visit_parameters", a.engine_visit_parameters, kOk, &WrongArguments::ignore_parameter, nullptr),
        entry("statistics", a.engine_statistics, kOk, &statistics_),
        entry("reset_statistics", a.engine_reset_statistics, kOk),
        entry("mark_written", a.engine_mark_written, kOk),
        entry("gather", a.engine_gather, kMoment),
        entry("release_gathered", a.engine_release_gathered, kMoment, 0),
        entry("gradient_norm", a.engine_gradient_norm, kMoment, 2.0, &number_),
        entry("clip_gradient_norm", a.engine_clip_gradient_norm, kMoment, 1.0, 2.0, &number_),
        entry("clip_gradients", a.engine_clip_gradients, kMoment, &found_, &number_),
        entry("clip_gradient_value", a.engine_clip_gradient_value, kMoment, 1.0),
        entry("zero_gradients", a.engine_zero_gradients, kOk),
        entry("set_gradient_sync", a.engine_set_gradient_sync, kOk, "", 1, 1),
        entry("set_all_reduce", a.engine_set_all_reduce, kOk, "", 1, 1),
        entry("set_gradient_divisor", a.engine_set_gradient_divisor, kOk, "", 1, 0.0),
        entry("unshard", a.engine_unshard, kMoment, "", 1, nullptr),
        entry("reshard", a.engine_reshard, kMoment, "", 1),
        entry("set_reshard_after_forward", a.engine_set_reshard_after_forward, kOk, "", 1, 1),
        entry("set_reshard_after_backward", a.engine_set_reshard_after_backward, kOk, "", 1, 1),
        entry("set_prefetch", a.engine_set_prefetch, kOk, "", nullptr, 0U, 0),
        entry("set_last_backward", a.engine_set_last_backward, kOk, 1),
        entry("unscale_gradients", a.engine_unscale_gradients, kMoment, 1.0, &found_),
        entry("check_step", a.engine_check_step, kMoment),
        entry("visit_geometry", a.engine_visit_geometry, kOk, &WrongArguments::ignore_geometry, nullptr),
        entry("gather_tensor", a.engine_gather_tensor, kMoment, "a.weight", &input_, -1, &output_),
        entry("export", a.engine_export_module, kMoment, "/nowhere/a.pt", "/nowhere/b.pt"),
        entry("load", a.engine_load_weights, kMoment, "/nowhere/a.pt"),
        entry("enter", a.engine_enter, kMoment, "", tensors_, 1, &call_),
    };
  }

  /// Entries without an engine, or without a status.
  std::set<const void*> other_entries() const {
    const fsdp2_api& a = api_;
    std::set<const void*> entries;
    const auto add = [&](auto... entry) { (entries.insert(reinterpret_cast<const void*>(entry)), ...); };
    add(a.status_code, a.status_message, a.status_detail, a.status_release);                     // ReleasedHandles
    add(a.initialize, a.shutdown, a.config_load, a.plan_text, a.shard, a.shard_tensors);         // Sizes, Nulls
    add(a.strategy_count, a.strategy_name, a.strategy_help);                                     // Indices
    add(a.dialect_count, a.dialect_name, a.dialect_help);                                        // Indices
    add(a.config_toml, a.config_warning, a.config_note_count, a.config_note, a.config_release);  // ReleasedHandles
    add(a.text_release, a.engine_release, a.engine_plan_text, a.call_exit, a.call_release);      // ReleasedHandles
    add(a.unshard_wait, a.unshard_release);                                                      // ReleasedHandles
    return entries;
  }

  static void ignore_parameter(void*, const char*, size_t, const void*) {}
  static void ignore_geometry(void*, const fsdp2_shard_geometry*) {}

  Plugin plugin_ = Plugin::load(plugin_path());
  const fsdp2_api& api_ = plugin_.api();
  fsdp2_config* config_ = nullptr;
  torch::jit::Module model_ = tiny_model();
  static at::Tensor new_weight() { return fill({4, 16}, 1).clone().requires_grad_(); }
  at::Tensor weight_ = new_weight();
  const char* name_ = "a.weight";
  const void* tensor_ = &weight_;
  at::Tensor input_ = fill({4, 16}, 2);
  at::Tensor output_;
  void* tensors_[1] = {&input_};
  fsdp2_statistics statistics_ = sized<fsdp2_statistics>();
  fsdp2_call* call_ = nullptr;
  double number_ = 0;
  int32_t found_ = 0;
};

TEST_F(WrongArguments, EveryEntryOfTheTableIsHere) {
  std::set<const void*> listed = other_entries();
  for (const EngineEntry& entry : engine_entries()) listed.insert(entry.entry);
  const size_t count = (api_.struct_size - sizeof(size_t)) / sizeof(void*);
  const auto* table = reinterpret_cast<const void* const*>(&api_.status_code);
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(listed.count(table[i]), 1U) << "entry " << i << " of fsdp2_api";
}

TEST_F(WrongArguments, EnginesThatAreNone) {
  fsdp2_engine* released = shard_tensors();
  api_.engine_release(released);
  fsdp2_engine* live = shard_tensors();  // whatever memory the first one had may be this one's
  fsdp2_call* call = enter(live);
  for (const EngineEntry& entry : engine_entries()) {
    EXPECT_EQ(text_of(entry.call(nullptr)), "1 engine is null") << entry.name;
    for (void* handle : {static_cast<void*>(released), static_cast<void*>(config_), static_cast<void*>(call)}) {
      EXPECT_EQ(text_of(entry.call(static_cast<fsdp2_engine*>(handle))), std::string("1 engine") + kDead) << entry.name;
    }
  }
  EXPECT_STREQ(api_.engine_plan_text(nullptr), "");
  EXPECT_STREQ(api_.engine_plan_text(released), "");
  api_.engine_release(nullptr);
  api_.engine_release(released);
  api_.engine_release(reinterpret_cast<fsdp2_engine*>(config_));
  EXPECT_NE(std::string(api_.config_toml(config_)), "");
  api_.call_release(call);
  EXPECT_EQ(text_of(api_.engine_detach(live)), "0 ");
  for (const EngineEntry& entry : engine_entries()) {
    EXPECT_EQ(text_of(entry.call(live)).substr(0, 2), std::to_string(entry.after_detach) + " ") << entry.name;
  }
  api_.engine_release(live);
}

TEST_F(WrongArguments, ReleasedHandles) {
  fsdp2_config* config = load_config();
  api_.config_release(config);
  api_.config_release(config);
  EXPECT_STREQ(api_.config_toml(config), "");
  EXPECT_STREQ(api_.config_warning(config), "");
  EXPECT_EQ(api_.config_note_count(config), 0U);
  EXPECT_EQ(api_.config_note(config, 0), nullptr);
  for (fsdp2_config* none : {config, static_cast<fsdp2_config*>(nullptr)}) {
    const std::string why = none == nullptr ? " is null" : kDead;
    auto plan = sized<fsdp2_plan_args>();
    plan.config = none;
    plan.module = &model_;
    plan.world_size = 2;
    char* text = nullptr;
    EXPECT_EQ(text_of(api_.plan_text(&plan, &text)), "1 fsdp2_plan_args.config" + why);
    auto shard = shard_args();
    shard.config = none;
    fsdp2_engine* engine = nullptr;
    EXPECT_EQ(text_of(api_.shard(&shard, &engine)), "1 fsdp2_shard_args.config" + why);
    auto shard_tensors = shard_tensors_args();
    shard_tensors.config = none;
    EXPECT_EQ(text_of(api_.shard_tensors(&shard_tensors, &engine)), "1 fsdp2_shard_tensors_args.config" + why);
  }

  fsdp2_status* status = api_.config_load(nullptr, nullptr);
  api_.status_release(status);
  api_.status_release(status);
  EXPECT_EQ(api_.status_code(status), FSDP2_INVALID_ARGUMENT);
  EXPECT_EQ(api_.status_message(status), std::string("the status") + kDead);
  EXPECT_EQ(api_.status_detail(status, "file"), nullptr);
  EXPECT_EQ(api_.status_code(nullptr), FSDP2_OK);
  EXPECT_STREQ(api_.status_message(nullptr), "");
  EXPECT_EQ(api_.status_detail(nullptr, "file"), nullptr);
  api_.status_release(nullptr);

  auto plan = sized<fsdp2_plan_args>();
  plan.config = config_;
  plan.module = &model_;
  plan.world_size = 2;
  char* text = nullptr;
  EXPECT_EQ(text_of(api_.plan_text(&plan, &text)), "0 ");
  api_.text_release(text);
  api_.text_release(text);
  api_.text_release(nullptr);
}

TEST_F(WrongArguments, ReleasedCalls) {
  fsdp2_engine* engine = shard_tensors();
  fsdp2_call* call = enter(engine);
  EXPECT_EQ(text_of(api_.call_exit(nullptr, tensors_, 1)), "1 call is null");
  EXPECT_EQ(text_of(api_.call_exit(reinterpret_cast<fsdp2_call*>(engine), tensors_, 1)), std::string("1 call") + kDead);
  EXPECT_EQ(text_of(api_.call_exit(call, nullptr, 1)), "1 tensors is null");
  EXPECT_EQ(text_of(api_.call_exit(call, tensors_, 1)), "0 ");
  EXPECT_EQ(text_of(api_.call_exit(call, tensors_, 1)), "5 call_exit() a second time for one call");
  api_.call_release(call);
  api_.call_release(call);
  api_.call_release(nullptr);
  EXPECT_EQ(text_of(api_.call_exit(call, tensors_, 1)), std::string("1 call") + kDead);
  // One that outlives its engine.
  call = enter(engine);
  api_.engine_release(engine);
  EXPECT_EQ(text_of(api_.call_exit(call, tensors_, 1)), "0 ");
  api_.call_release(call);
}

TEST_F(WrongArguments, ReleasedUnshards) {
  fsdp2_engine* engine = shard_tensors();
  fsdp2_unshard* unshard = nullptr;
  EXPECT_EQ(text_of(api_.engine_unshard(engine, "", 1, &unshard)), "0 ");
  EXPECT_EQ(text_of(api_.unshard_wait(nullptr)), "1 unshard is null");
  EXPECT_EQ(text_of(api_.unshard_wait(reinterpret_cast<fsdp2_unshard*>(engine))), std::string("1 unshard") + kDead);
  EXPECT_EQ(text_of(api_.unshard_wait(unshard)), "0 ");
  EXPECT_EQ(text_of(api_.unshard_wait(unshard)), "0 ");
  api_.engine_release(engine);
  EXPECT_EQ(text_of(api_.unshard_wait(unshard)), "0 ");
  api_.unshard_release(unshard);
  api_.unshard_release(unshard);
  api_.unshard_release(nullptr);
  EXPECT_EQ(text_of(api_.unshard_wait(unshard)), std::string("1 unshard") + kDead);
}

TEST_F(WrongArguments, AnEngineThatAVisitorReleases) {
  struct Host {
    const fsdp2_api& api;
    fsdp2_engine* engine;
    int visits = 0;
  } host{api_, shard_tensors()};
  const auto visitor = [](void* user, const fsdp2_shard_geometry* part) {
    auto& self = *static_cast<Host*>(user);
    self.api.engine_release(self.engine);
    self.visits += part->dims == 2 ? 1 : 0;
  };
  EXPECT_EQ(text_of(api_.engine_visit_geometry(host.engine, visitor, &host)), "0 ");
  EXPECT_EQ(host.visits, 1);
  EXPECT_EQ(text_of(api_.engine_detach(host.engine)), std::string("1 engine") + kDead);
}

TEST_F(WrongArguments, Nulls) {
  fsdp2_engine* engine = shard_tensors();
  EXPECT_EQ(text_of(api_.engine_visit_parameters(engine, nullptr, nullptr)), "1 visitor is null");
  EXPECT_EQ(text_of(api_.engine_visit_geometry(engine, nullptr, nullptr)), "1 visitor is null");
  EXPECT_EQ(text_of(api_.engine_statistics(engine, nullptr)), "1 fsdp2_statistics is null");
  EXPECT_EQ(text_of(api_.engine_gradient_norm(engine, 2, nullptr)), "1 norm is null");
  EXPECT_EQ(text_of(api_.engine_clip_gradient_norm(engine, 1, 2, nullptr)), "0 ") << "may be null";
  EXPECT_EQ(text_of(api_.engine_clip_gradients(engine, nullptr, nullptr)), "0 ") << "may be null";
  EXPECT_EQ(text_of(api_.engine_unscale_gradients(engine, 1, nullptr)), "1 found_inf is null");
  EXPECT_EQ(text_of(api_.engine_gather_tensor(engine, nullptr, &input_, -1, &output_)), "1 name is null");
  EXPECT_EQ(text_of(api_.engine_gather_tensor(engine, name_, nullptr, -1, &output_)), "1 shard is null");
  EXPECT_EQ(text_of(api_.engine_gather_tensor(engine, name_, &input_, -1, nullptr)), "1 out is null");
  EXPECT_EQ(text_of(api_.engine_export_module(engine, nullptr, "b")), "1 source is null");
  EXPECT_EQ(text_of(api_.engine_export_module(engine, "a", nullptr)), "1 target is null");
  EXPECT_EQ(text_of(api_.engine_load_weights(engine, nullptr)), "1 source is null");
  EXPECT_EQ(text_of(api_.engine_enter(engine, nullptr, tensors_, 1, &call_)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_set_gradient_sync(engine, nullptr, 1, 1)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_unshard(engine, nullptr, 1, nullptr)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_reshard(engine, nullptr, 1)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_set_reshard_after_forward(engine, nullptr, 1, 1)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_set_reshard_after_backward(engine, nullptr, 1, 1)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_set_prefetch(engine, nullptr, nullptr, 0, 0)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_set_prefetch(engine, "", nullptr, 1, 0)), "1 ahead is null");
  const char* const no_path[] = {nullptr};
  EXPECT_EQ(text_of(api_.engine_set_prefetch(engine, "", no_path, 1, 0)), "1 ahead[0] is null");
  EXPECT_EQ(text_of(api_.engine_set_all_reduce(engine, nullptr, 1, 1)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_set_gradient_divisor(engine, nullptr, 1, 0)), "1 path is null");
  EXPECT_EQ(text_of(api_.engine_enter(engine, "", nullptr, 1, &call_)), "1 tensors is null");
  EXPECT_EQ(text_of(api_.engine_enter(engine, "", tensors_, 1, nullptr)), "1 out is null");
  void* none[] = {nullptr};
  EXPECT_EQ(text_of(api_.engine_enter(engine, "", none, 1, &call_)), "1 tensors[0] is null");
  api_.engine_release(engine);

  fsdp2_config* config = nullptr;
  auto config_args = sized<fsdp2_config_args>();
  EXPECT_EQ(text_of(api_.config_load(&config_args, nullptr)), "1 out is null");
  EXPECT_EQ(text_of(api_.config_load(&config_args, &config)),
            "1 fsdp2_config_args needs either path or text, or host_keys");
  config_args.text = kText;
  config_args.override_count = 1;
  EXPECT_EQ(text_of(api_.config_load(&config_args, &config)), "1 fsdp2_config_args.overrides is null");
  const char* nothing = nullptr;
  config_args.overrides = &nothing;
  EXPECT_EQ(text_of(api_.config_load(&config_args, &config)), "1 an entry of fsdp2_config_args.overrides is null");
  config_args.override_count = 0;
  config_args.path = "/nowhere/train.toml";
  EXPECT_EQ(text_of(api_.config_load(&config_args, &config)), "1 fsdp2_config_args has both path and text");
  config_args.path = nullptr;
  EXPECT_EQ(config, nullptr);

  auto plan = sized<fsdp2_plan_args>();
  plan.config = config_;
  char* text = nullptr;
  EXPECT_EQ(text_of(api_.plan_text(&plan, nullptr)), "1 out is null");
  EXPECT_EQ(text_of(api_.plan_text(&plan, &text)), "1 fsdp2_plan_args.module is null");
  plan.module = &model_;
  EXPECT_EQ(text_of(api_.plan_text(&plan, &text)), "1 fsdp2_plan_args.world_size is 0, expected at least 1");

  auto shard = shard_args();
  EXPECT_EQ(text_of(api_.shard(&shard, nullptr)), "1 out is null");
  shard.module = nullptr;
  EXPECT_EQ(text_of(api_.shard(&shard, &engine)), "1 fsdp2_shard_args.module is null");

  auto tensors = shard_tensors_args();
  EXPECT_EQ(text_of(api_.shard_tensors(&tensors, nullptr)), "1 out is null");
  tensors.names = nullptr;
  EXPECT_EQ(text_of(api_.shard_tensors(&tensors, &engine)), "1 fsdp2_shard_tensors_args.names is null");
  tensors.names = &nothing;
  EXPECT_EQ(text_of(api_.shard_tensors(&tensors, &engine)), "1 fsdp2_shard_tensors_args.names[0] is null");
  tensors = shard_tensors_args();
  tensors.tensors = nullptr;
  EXPECT_EQ(text_of(api_.shard_tensors(&tensors, &engine)), "1 fsdp2_shard_tensors_args.tensors is null");
  const void* no_tensor = nullptr;
  tensors.tensors = &no_tensor;
  EXPECT_EQ(text_of(api_.shard_tensors(&tensors, &engine)), "1 fsdp2_shard_tensors_args.tensors[0] is null");
  tensors = shard_tensors_args();
  tensors.units = &nothing;
  tensors.unit_count = 1;
  EXPECT_EQ(text_of(api_.shard_tensors(&tensors, &engine)), "1 fsdp2_shard_tensors_args.units[0] is null");
  EXPECT_EQ(engine, nullptr);
}

TEST_F(WrongArguments, HostKeys) {
  fsdp2_config* config = nullptr;
  auto args = sized<fsdp2_config_args>();
  args.text = "[fsdp]\ndialect = 'accelerate'\n";
  args.host_key_count = 1;
  EXPECT_EQ(text_of(api_.config_load(&args, &config)), "1 fsdp2_config_args.host_keys is null");
  const char* keys[] = {"fsdp_version=2", nullptr};
  args.host_keys = keys;
  args.host_key_count = 2;
  EXPECT_EQ(text_of(api_.config_load(&args, &config)), "1 fsdp2_config_args.host_keys[1] is null");
  for (const char* wrong : {"", "fsdp_version", "=2"}) {
    keys[1] = wrong;
    EXPECT_EQ(text_of(api_.config_load(&args, &config)),
              "1 fsdp2_config_args.host_keys[1]: `" + std::string(wrong) + "` is not written name=value");
  }
  keys[1] = "fsdp\xFF=2";
  EXPECT_EQ(text_of(api_.config_load(&args, &config)),
            "2 fsdp2_config_args.host_keys[1]:1:5: this is not text in UTF-8");
  keys[1] = ".x=2";
  EXPECT_EQ(text_of(api_.config_load(&args, &config)),
            "2 the host's keys: `.x` is no key: there is no name before or after a dot");
  EXPECT_EQ(config, nullptr);
  // What lies behind the struct of a host that was built before they came is not read.
  args.struct_size = offsetof(fsdp2_config_args, host_keys);
  args.text = kText;
  args.host_keys = reinterpret_cast<const char* const*>(1);
  EXPECT_EQ(text_of(api_.config_load(&args, &config)), "0 ");
  api_.config_release(config);
}

TEST_F(WrongArguments, Values) {
  fsdp2_engine* engine = shard_tensors();
  const at::Tensor undefined;
  const at::Tensor small = at::ones({3});
  EXPECT_EQ(text_of(api_.engine_gradient_norm(engine, 0, &number_)).substr(0, 2), "1 ");
  for (const double wrong : {-1.0, kNaN}) {
    EXPECT_EQ(text_of(api_.engine_gradient_norm(engine, wrong, &number_)).substr(0, 2), "1 ") << wrong;
    EXPECT_EQ(text_of(api_.engine_clip_gradient_norm(engine, wrong, 2, nullptr)).substr(0, 2), "1 ") << wrong;
    EXPECT_EQ(text_of(api_.engine_clip_gradient_norm(engine, 1, wrong, nullptr)).substr(0, 2), "1 ") << wrong;
    EXPECT_EQ(text_of(api_.engine_clip_gradient_value(engine, wrong)).substr(0, 2), "1 ") << wrong;
  }
  for (const double wrong : {0.0, kNaN}) {
    EXPECT_EQ(text_of(api_.engine_unscale_gradients(engine, wrong, &found_)).substr(0, 2), "1 ") << wrong;
  }
  for (const at::Tensor* wrong : {&undefined, &small}) {
    EXPECT_EQ(text_of(api_.engine_gather_tensor(engine, name_, wrong, -1, &output_)).substr(0, 2), "1 ");
  }
  for (const int64_t wrong : {-2, 1}) {
    EXPECT_EQ(text_of(api_.engine_gather_tensor(engine, name_, &input_, wrong, &output_)),
              "1 gather_tensor: the rank is " + std::to_string(wrong) + ", expected -1 (all) to 0");
  }
  EXPECT_EQ(text_of(api_.engine_gather_tensor(engine, "b.weight", &input_, -1, &output_)).substr(0, 2), "3 ");
  EXPECT_EQ(text_of(api_.engine_enter(engine, "b", tensors_, 1, &call_)).substr(0, 2), "3 ");
  // An optional input that is not there.
  at::Tensor absent;
  void* optional[] = {&absent};
  EXPECT_EQ(text_of(api_.engine_enter(engine, "", optional, 1, &call_)), "0 ");
  EXPECT_FALSE(absent.defined());
  EXPECT_EQ(text_of(api_.call_exit(call_, optional, 1)), "0 ");
  api_.call_release(call_);
  EXPECT_EQ(text_of(api_.engine_detach(engine)), "0 ");
  api_.engine_release(engine);
  engine = nullptr;
  auto tensors = shard_tensors_args();
  const void* no_tensor = &undefined;
  tensors.tensors = &no_tensor;
  EXPECT_EQ(text_of(api_.shard_tensors(&tensors, &engine)).substr(0, 2), "1 ");
  EXPECT_EQ(engine, nullptr);
}

TEST_F(WrongArguments, Indices) {
  for (const size_t wrong : {api_.strategy_count(), std::numeric_limits<size_t>::max()}) {
    EXPECT_EQ(api_.strategy_name(wrong), nullptr);
    EXPECT_EQ(api_.strategy_help(wrong), nullptr);
  }
  for (const size_t wrong : {api_.dialect_count(), std::numeric_limits<size_t>::max()}) {
    EXPECT_EQ(api_.dialect_name(wrong), nullptr);
    EXPECT_EQ(api_.dialect_help(wrong), nullptr);
  }
  EXPECT_EQ(api_.config_note(config_, api_.config_note_count(config_)), nullptr);
  fsdp2_status* status = api_.config_load(nullptr, nullptr);
  EXPECT_EQ(api_.status_detail(status, nullptr), nullptr);
  EXPECT_EQ(api_.status_detail(status, "no such detail"), nullptr);
  api_.status_release(status);
}

TEST_F(WrongArguments, Sizes) {
  // What each entry answers to a struct with all else right; what it gave is released.
  const auto check = [&](const std::string& name, size_t least, const auto& good, const auto& call) {
    using Struct = std::decay_t<decltype(good)>;
    struct Newer {
      Struct known;
      uint64_t more[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    };
    const auto with_size = [&](size_t size) {
      Newer args{good};
      args.known.struct_size = size;
      return text_of(call(&args.known));
    };
    EXPECT_EQ(text_of(call(static_cast<Struct*>(nullptr))), "1 " + name + " is null");
    for (const size_t small : {size_t{0}, size_t{1}, sizeof(size_t), least - 1}) {
      EXPECT_EQ(with_size(small), "1 " + name + ".struct_size is " + std::to_string(small) + ", expected at least " +
                                      std::to_string(least) + ": set it to sizeof(" + name + ")");
    }
    for (const size_t wild : {size_t{65536}, reinterpret_cast<size_t>(&good), std::numeric_limits<size_t>::max()}) {
      EXPECT_EQ(with_size(wild), "1 " + name + ".struct_size is " + std::to_string(wild) +
                                     ", which is no size of it: set it to sizeof(" + name + ")");
    }
    EXPECT_EQ(with_size(least), "0 ") << name;
    EXPECT_EQ(with_size(sizeof(Newer)), "0 ") << name;
  };

  auto host = sized<fsdp2_host_info>();
  host.abi_major = FSDP2_ABI_MAJOR;
  host.abi_minor = FSDP2_ABI_MINOR;
  check("fsdp2_host_info", 48, host, [&](fsdp2_host_info* args) { return api_.initialize(args); });
  check("fsdp2_host_info", 48, host, [&](fsdp2_host_info* args) { return api_.shutdown(args); });

  auto config_args = sized<fsdp2_config_args>();
  config_args.text = kText;
  check("fsdp2_config_args", 40, config_args, [&](fsdp2_config_args* args) {
    fsdp2_config* config = nullptr;
    fsdp2_status* status = api_.config_load(args, &config);
    api_.config_release(config);
    return status;
  });

  auto plan_args = sized<fsdp2_plan_args>();
  plan_args.config = config_;
  plan_args.module = &model_;
  plan_args.world_size = 2;
  check("fsdp2_plan_args", 32, plan_args, [&](fsdp2_plan_args* args) {
    char* text = nullptr;
    fsdp2_status* status = api_.plan_text(args, &text);
    api_.text_release(text);
    return status;
  });

  const auto end = [&](fsdp2_engine* engine) {
    if (engine != nullptr) api_.status_release(api_.engine_detach(engine));
    api_.engine_release(engine);
  };
  check("fsdp2_shard_args", 48, shard_args(), [&](fsdp2_shard_args* args) {
    fsdp2_engine* engine = nullptr;
    fsdp2_status* status = api_.shard(args, &engine);
    end(engine);
    return status;
  });
  check("fsdp2_shard_tensors_args", 80, shard_tensors_args(), [&](fsdp2_shard_tensors_args* args) {
    fsdp2_engine* engine = nullptr;
    fsdp2_status* status = api_.shard_tensors(args, &engine);
    end(engine);
    return status;
  });

  auto communicator = sized<fsdp2_communicator>();
  communicator.world_size = 1;
  communicator.all_gather = [](void*, void*, const void*, int64_t, void*, void**) -> const char* { return nullptr; };
  communicator.all_to_all = communicator.all_gather;
  communicator.test = [](void*, void*, int32_t*) -> const char* { return nullptr; };
  check("fsdp2_communicator", 72, communicator, [&](fsdp2_communicator* table) {
    auto args = shard_args();
    args.communicator_kind = FSDP2_COMMUNICATOR_CALLBACKS;
    args.communicator = table;
    fsdp2_engine* engine = nullptr;
    fsdp2_status* status = api_.shard(&args, &engine);
    end(engine);
    return status;
  });

  fsdp2_engine* engine = shard_tensors();
  check("fsdp2_statistics", 144, sized<fsdp2_statistics>(),
        [&](fsdp2_statistics* out) { return api_.engine_statistics(engine, out); });
  api_.engine_release(engine);
}

TEST_F(WrongArguments, Communicators) {
  auto args = shard_args();
  const auto refused = [&](fsdp2_communicator_kind kind, const void* communicator) {
    args.communicator_kind = kind;
    args.communicator = communicator;
    fsdp2_engine* engine = nullptr;
    const std::string text = text_of(api_.shard(&args, &engine));
    EXPECT_EQ(engine, nullptr);
    return text;
  };
  for (const fsdp2_communicator_kind unknown : {-1, 4, 9}) {
    EXPECT_EQ(refused(unknown, nullptr), "1 fsdp2_shard_args.communicator_kind is " + std::to_string(unknown) +
                                             ", which this version does not know");
  }
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_C10D_BACKEND, nullptr), "1 fsdp2_shard_args.communicator is null");
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP, nullptr), "1 fsdp2_shard_args.communicator is null");
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_CALLBACKS, nullptr), "1 fsdp2_communicator is null");
  const c10::intrusive_ptr<c10d::Backend> no_backend;
  const c10::intrusive_ptr<c10d::ProcessGroup> no_group;
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_C10D_BACKEND, &no_backend),
            "1 the communicator is null: no c10d::Backend was given");
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP, &no_group),
            "1 the communicator is null: no c10d::ProcessGroup was given");

  // The right objects under a wrong tag.
  struct OneRank : c10d::Backend {
    OneRank() : Backend(0, 1) {}
  };
  const c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<OneRank>();
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_C10D_BACKEND, &group),
            "1 fsdp2_shard_args.communicator is no c10d::Backend, as communicator_kind says, but a c10d::ProcessGroup");
  const std::string text = refused(FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP, &backend);
  EXPECT_EQ(
      text.rfind("1 fsdp2_shard_args.communicator is no c10d::ProcessGroup, as communicator_kind says, but a ", 0), 0U);
  EXPECT_NE(text.find("OneRank"), std::string::npos) << text;
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_CALLBACKS, &group),
            "1 fsdp2_communicator.struct_size is " + std::to_string(reinterpret_cast<size_t>(group.get())) +
                ", which is no size of it: set it to sizeof(fsdp2_communicator)");
  auto table = sized<fsdp2_communicator>();
  for (const fsdp2_communicator_kind kind : {FSDP2_COMMUNICATOR_C10D_BACKEND, FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP}) {
    EXPECT_EQ(refused(kind, &table),
              "1 fsdp2_shard_args.communicator is no c10d object; for a fsdp2_communicator, "
              "communicator_kind is FSDP2_COMMUNICATOR_CALLBACKS");
  }
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_ENVIRONMENT, &table),
            "1 fsdp2_shard_args.communicator is set, but communicator_kind does not say what it is");

  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_CALLBACKS, &table), "1 fsdp2_communicator.world_size is 0, expected at least 1");
  table.world_size = 2;
  table.rank = 2;
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_CALLBACKS, &table), "1 fsdp2_communicator.rank is 2, expected 0 to 1");
  table.rank = 0;
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_CALLBACKS, &table), "1 fsdp2_communicator.all_gather is null");
  table.all_gather = [](void*, void*, const void*, int64_t, void*, void**) -> const char* { return nullptr; };
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_CALLBACKS, &table), "1 fsdp2_communicator.all_to_all is null");
  table.all_to_all = table.all_gather;
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_CALLBACKS, &table), "1 fsdp2_communicator.test is null");

  args.backend = "gloo";
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_C10D_BACKEND, &no_backend),
            "1 fsdp2_shard_args.backend is only for a communicator made from the environment");
  args.backend = "carrier pigeon";
  EXPECT_EQ(refused(FSDP2_COMMUNICATOR_ENVIRONMENT, nullptr),
            "1 unknown backend \"carrier pigeon\": expected \"gloo\" or \"nccl\"");
}

}  // namespace
}  // namespace fsdp2::testing
