// Loading once, twice, as a copy, closing and going on: one process per test, since what is loaded stays.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <fsdp2/plugin.hpp>

#include "tests/abi/scratch.hpp"
#include "tests/abi/tiny_model.hpp"

namespace fsdp2::testing {
namespace {

constexpr const char* kConfig = "[fsdp]\nwrap = { policy = \"every\" }\n";

/// The variables that torchrun would set for a world of one.
void be_the_only_rank() {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
}

/// Opens the real library and asks for its table, as plugin.hpp would, but initializes nothing.
const fsdp2_api& raw_api() {
  void* library = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto get_api = reinterpret_cast<fsdp2_get_api_function>(dlsym(library, FSDP2_GET_API_SYMBOL));
  return *get_api(FSDP2_ABI_MAJOR);
}

fsdp2_host_info host_info() {
  fsdp2_host_info host{};
  host.struct_size = sizeof(host);
  host.abi_major = FSDP2_ABI_MAJOR;
  host.abi_minor = FSDP2_ABI_MINOR;
  return host;
}

/// Code and text of a status, which is released.
std::pair<fsdp2_code, std::string> take(const fsdp2_api& api, fsdp2_status* status) {
  std::pair<fsdp2_code, std::string> result{api.status_code(status), api.status_message(status)};
  api.status_release(status);
  return result;
}

TEST(Lifecycle, TwoLoadsOfOneFileShareOneImage) {
  const Plugin first = Plugin::load(plugin_path());
  {
    const Plugin second = Plugin::load(plugin_path());
    EXPECT_EQ(&first.api(), &second.api());
    EXPECT_FALSE(second.strategies().empty());
  }
  EXPECT_FALSE(first.strategies().empty());
  EXPECT_FALSE(first.config_from_text(kConfig).toml().empty());
}

TEST(Lifecycle, ASymbolicLinkIsTheSameFile) {
  const Scratch scratch;
  const std::string link = scratch.path("link.so");
  ASSERT_EQ(symlink(plugin_path().c_str(), link.c_str()), 0);
  const Plugin first = Plugin::load(plugin_path());
  const Plugin second = Plugin::load(link);
  EXPECT_EQ(&first.api(), &second.api());
  EXPECT_EQ(first.path(), second.path());
}

TEST(Lifecycle, ACopyIsRefusedByNameAndTheFirstGoesOn) {
  be_the_only_rank();
  const Scratch scratch;
  const std::string copy = scratch.path("libcopy.so");
  write_file(copy, read_file(plugin_path()));
  const Plugin first = Plugin::load(plugin_path());
  try {
    Plugin::load(copy);
    FAIL() << "the copy was loaded";
  } catch (const Exception& error) {
    EXPECT_EQ(error.code(), FSDP2_ALREADY_LOADED);
    EXPECT_EQ(std::string(error.what()), "another image of fsdp2-plugin is active in this process: " + first.path() +
                                             "; this one is " + copy + ". Load one file only, by one path");
  }
  auto model = tiny_model();
  Engine engine = first.shard(model, first.config_from_text(kConfig));
  EXPECT_EQ(model.forward({fill({2, 16}, 5)}).toTensor().size(1), 4);
  engine.detach();
}

TEST(Lifecycle, ACopyThatCameFirstIsNamedToo) {
  const Scratch scratch;
  const std::string copy = scratch.path("libcopy.so");
  write_file(copy, read_file(plugin_path()));
  const Plugin first = Plugin::load(copy);
  try {
    Plugin::load(plugin_path());
    FAIL() << "the second was loaded";
  } catch (const Exception& error) {
    EXPECT_NE(std::string(error.what()).find("active in this process: " + copy), std::string::npos) << error.what();
  }
}

TEST(Lifecycle, AGraphWithOurOperatorsRunsAfterTheLibraryIsClosed) {
  be_the_only_rank();
  auto model = tiny_model();
  const at::Tensor input = fill({2, 16}, 5);
  const at::Tensor expected = model.forward({input}).toTensor();
  auto wrapped_function = [&] {
    const Plugin plugin = Plugin::load(plugin_path());
    Engine engine = plugin.shard(model, plugin.config_from_text(kConfig));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(model.forward({input}).toTensor(), expected));
    // A method that the host took keeps the instrumented function beyond detach.
    auto method = model.get_method("forward");
    engine.detach();
    return method;
  }();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(wrapped_function({input}).toTensor(), expected));
    EXPECT_TRUE(at::allclose(model.forward({input}).toTensor(), expected));
  }
  const Plugin again = Plugin::load(plugin_path());
  Engine engine = again.shard(model, again.config_from_text(kConfig));
  EXPECT_TRUE(at::allclose(model.forward({input}).toTensor(), expected));
  engine.detach();
}

TEST(Lifecycle, TheHostsOwnOperatorsWorkAfterReopening) {
  const torch::jit::RegisterOperators host_operators({torch::jit::Operator(
      "fsdp2_test_host::twice(Tensor x) -> Tensor",
      [](torch::jit::Stack& stack) {
        const at::Tensor x = torch::jit::pop(stack).toTensor();
        torch::jit::push(stack, x + x);
      },
      c10::AliasAnalysisKind::FROM_SCHEMA)});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Plugin::load(plugin_path()).strategies().empty());
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR("graph(%x):\n  %y : Tensor = fsdp2_test_host::twice(%x)\n  return (%y)\n", graph.get());
  torch::jit::Stack stack{at::ones({3})};
  torch::jit::GraphExecutor(graph, "twice").run(stack);
  EXPECT_TRUE(at::equal(stack.front().toTensor(), at::full({3}, 2.0)));
}

TEST(Lifecycle, TheLastShutdownFailsWhileAnEngineLives) {
  be_the_only_rank();
  const fsdp2_api& api = raw_api();
  const fsdp2_host_info host = host_info();
  auto model = tiny_model();
  ASSERT_EQ(api.initialize(&host), nullptr);
  ASSERT_EQ(api.initialize(&host), nullptr);
  fsdp2_config_args config_args{};
  config_args.struct_size = sizeof(config_args);
  config_args.text = kConfig;
  fsdp2_config* config = nullptr;
  ASSERT_EQ(api.config_load(&config_args, &config), nullptr);
  fsdp2_shard_args shard_args{};
  shard_args.struct_size = sizeof(shard_args);
  shard_args.config = config;
  shard_args.module = &model;
  fsdp2_engine* engine = nullptr;
  ASSERT_EQ(take(api, api.shard(&shard_args, &engine)).second, "");
  EXPECT_EQ(api.shutdown(&host), nullptr);
  const std::pair<fsdp2_code, std::string> refused{FSDP2_FAILED_PRECONDITION,
                                                   "shutdown while 1 engine lives: release every engine first"};
  EXPECT_EQ(take(api, api.shutdown(&host)), refused);
  EXPECT_EQ(take(api, api.engine_detach(engine)).second, "");
  EXPECT_EQ(take(api, api.shutdown(&host)), refused);
  api.engine_release(engine);
  EXPECT_EQ(api.shutdown(&host), nullptr);
  EXPECT_EQ(take(api, api.shutdown(&host)).second, "shutdown without initialize");
  EXPECT_EQ(take(api, api.shard(&shard_args, &engine)).second, "shard before initialize");
  api.config_release(config);
}

TEST(Lifecycle, TheLogGoesToTheHostThatCameLast) {
  std::vector<std::string> first_lines;
  std::vector<std::string> second_lines;
  const auto into = [](std::vector<std::string>& lines) {
    return [&lines](fsdp2_log_level, const std::string& text) { lines.push_back(text); };
  };
  const Scratch scratch;
  write_file(scratch.path("launch.yaml"),
             "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_use_orig_params: true\n");
  write_file(scratch.path("train.toml"), "[fsdp]\ndialect = \"accelerate\"\nconfig = \"launch.yaml\"\n");
  const auto lines_of = [&](const Plugin& plugin) {
    first_lines.clear();
    second_lines.clear();
    const Configuration config = plugin.config_from_file(scratch.path("train.toml"));
    EXPECT_NE(config.warning(), "");
    std::vector<std::string> lines{config.warning()};
    for (const std::string& note : config.notes()) lines.push_back(note);
    return lines;
  };
  const Plugin first = Plugin::load(plugin_path(), into(first_lines));
  {
    const Plugin second = Plugin::load(plugin_path(), into(second_lines));
    const auto lines = lines_of(second);
    EXPECT_EQ(second_lines, lines);
    EXPECT_TRUE(first_lines.empty());
  }
  const auto lines = lines_of(first);
  EXPECT_EQ(first_lines, lines);
  EXPECT_TRUE(second_lines.empty());
}

TEST(Handshake, TheLibraryChecksTheHostToo) {
  const fsdp2_api& api = raw_api();
  const std::string path = plugin_path();
  fsdp2_host_info host = host_info();
  host.abi_major = 9;
  EXPECT_EQ(take(api, api.initialize(&host)),
            std::make_pair(fsdp2_code{FSDP2_VERSION_MISMATCH},
                           path + ": this plugin speaks ABI 1.1, the host 9.1: rebuild the host with this plugin's "
                                  "plugin.h"));
  host = host_info();
  host.torch_abi_version = (uint64_t{2} << 56) | (uint64_t{15} << 48);
  EXPECT_EQ(take(api, api.initialize(&host)),
            std::make_pair(fsdp2_code{FSDP2_VERSION_MISMATCH}, path + ": built for LibTorch " TORCH_VERSION
                                                                      ", the host for LibTorch 2.15.0: rebuild one of "
                                                                      "them"));
  host = host_info();
  host.torch_abi_entry = &host;  // an address of another image, here of none
  const auto refused = take(api, api.initialize(&host));
  EXPECT_EQ(refused.first, FSDP2_VERSION_MISMATCH);
  EXPECT_EQ(refused.second.rfind(path + ": the host uses the LibTorch in an unknown file, the plugin that in ", 0), 0U)
      << refused.second;
  host = host_info();
  host.torch_abi_version = TORCH_ABI_VERSION;
  host.torch_abi_entry = reinterpret_cast<const void*>(&aoti_torch_abi_version);
  EXPECT_EQ(take(api, api.initialize(&host)).second, "");
  EXPECT_EQ(api.shutdown(&host), nullptr);
}

}  // namespace
}  // namespace fsdp2::testing
