// fsdp2-train: trains a TorchScript module in shards. A sample of a host of the plugin, and a useful program.
#include <c10/util/Exception.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "samples/host_trainer/command_line.hpp"
#include "samples/host_trainer/config.hpp"
#include "samples/host_trainer/launcher.hpp"
#include "samples/host_trainer/training.hpp"

namespace {

using namespace trainer;

/// LibTorch's errors carry a C++ stack that says nothing to a person.
template <class Function>
void without_backtraces(const Function& function) {
  try {
    function();
  } catch (const c10::Error& e) {
    throw std::runtime_error(e.what_without_backtrace());
  }
}

int run(const CommandLine& options) {
  const Config config = load_config(options.config, options.sets);
  if (options.plan) {
    const RankEnvironment launched = launched_rank().value_or(RankEnvironment{});
    const int world = options.nproc ? options.nproc : launched.world;
    const int of_a_node = options.nproc ? options.nproc : launched.local_world;  // --nproc starts them on one machine
    const torch::jit::Module module = load_module(config, at::kCPU);
    std::printf("%s", Sharding(options, config, true).plan(module, world, of_a_node).c_str());
    return 0;
  }
  auto train = [&](const RankEnvironment& environment) {
    std::unique_ptr<Training> training;
    try {
      without_backtraces([&] {
        training = std::make_unique<Training>(config, options, environment);
        training->run();
      });
    } catch (...) {
      // Its connections stay open until the process ends: else other ranks would fail before this error is heard.
      static_cast<void>(training.release());
      throw;
    }
  };
  if (options.unsharded) {
    train({});
    return 0;
  }
  const std::optional<RankEnvironment> launched = launched_rank();
  if (options.nproc && launched)
    throw std::runtime_error("A launcher has started this process as rank " + std::to_string(launched->rank) + " of " +
                             std::to_string(launched->world) + " already: leave out --nproc.");
  if (options.nproc) return launch(options.nproc, train);
  train(launched.value_or(RankEnvironment{}));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto [options, exit_code] = parse_command_line(argc, argv);
  if (exit_code) return *exit_code;
  try {
    int code = 0;
    without_backtraces([&, &options = options] { code = run(options); });
    return code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fsdp2-train: %s\n", e.what());
    return 1;
  }
}
