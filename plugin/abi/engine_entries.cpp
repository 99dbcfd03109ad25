// Entries that make a plan and run an engine.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstring>

#include "plugin/abi/arguments.hpp"
#include "plugin/abi/config_handle.hpp"
#include "plugin/abi/engine_handle.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/status.hpp"
#include "plugin/engine/c10d_environment.hpp"
#include "plugin/wrap/planner.hpp"
#include "registry/plan.hpp"

namespace fsdp2::entries {
namespace {

using torch::jit::Module;

char* copy_text(const std::string& text) {
  char* copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

/// The tag says what the pointer is: read as the other class it would be foreign memory.
std::shared_ptr<Communicator> communicator_of(const fsdp2_shard_args& args, c10::Device device, Timeout timeout) {
  if (args.backend != nullptr && args.communicator_kind != FSDP2_COMMUNICATOR_ENVIRONMENT) {
    throw Error(ErrorCode::kInvalidArgument,
                "fsdp2_shard_args.backend is only for a communicator made from the environment");
  }
  switch (args.communicator_kind) {
    case FSDP2_COMMUNICATOR_ENVIRONMENT:
      if (args.communicator != nullptr) {
        throw Error(ErrorCode::kInvalidArgument,
                    "fsdp2_shard_args.communicator is set, but communicator_kind does not say what it is");
      }
      return communicator_from_environment(args.backend != nullptr ? args.backend : "", device, timeout);
    case FSDP2_COMMUNICATOR_C10D_BACKEND: {
      using Pointer = const c10::intrusive_ptr<c10d::Backend>;
      return C10dCommunicator::from_backend(
          require_argument(static_cast<Pointer*>(args.communicator), "fsdp2_shard_args.communicator"), timeout);
    }
    case FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP: {
      using Pointer = const c10::intrusive_ptr<c10d::ProcessGroup>;
      return C10dCommunicator::from_process_group(
          require_argument(static_cast<Pointer*>(args.communicator), "fsdp2_shard_args.communicator"), device.type(),
          timeout);
    }
    default:
      throw Error(ErrorCode::kInvalidArgument, "fsdp2_shard_args.communicator_kind is " +
                                                   std::to_string(args.communicator_kind) +
                                                   ", which this version does not know");
  }
}

fsdp2_statistics to_c(const Statistics& s) {
  fsdp2_statistics c{};
  c.struct_size = sizeof(c);
  c.all_gathers = s.all_gathers;
  c.all_gather_bytes = s.all_gather_bytes;
  c.reduce_scatters = s.reduce_scatters;
  c.reduce_scatter_bytes = s.reduce_scatter_bytes;
  c.all_reduces = s.all_reduces;
  c.all_reduce_bytes = s.all_reduce_bytes;
  c.stale_gathers = s.stale_gathers;
  c.unsharded_bytes = s.unsharded_bytes;
  c.unsharded_peak_bytes = s.unsharded_peak_bytes;
  c.planned_peak_bytes = s.planned_peak_bytes;
  c.shard_bytes = s.shard_bytes;
  c.parameter_bytes = s.parameter_bytes;
  c.padding_bytes = s.padding_bytes;
  c.wrap_peak_bytes = s.wrap_peak_bytes;
  c.units = s.units;
  c.rank = s.rank;
  c.world_size = s.world_size;
  return c;
}

ShardedModule& module_of(const fsdp2_engine* engine) {
  return *require_argument(engine, "engine").module;
}

}  // namespace

fsdp2_status* plan_text(const fsdp2_plan_args* given, char** out) noexcept {
  return guard([&] {
    require_argument(out, "out") = nullptr;
    require_initialized("plan_text");
    const auto args = read_struct(given, "fsdp2_plan_args");
    const auto& config = require_argument(args.config, "fsdp2_plan_args.config");
    const auto& module = require_argument(static_cast<const Module*>(args.module), "fsdp2_plan_args.module");
    if (args.world_size < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  "fsdp2_plan_args.world_size is " + std::to_string(args.world_size) + ", expected at least 1");
    }
    *out = copy_text(to_table(make_plan(tree_of(module), config.config, args.world_size)));
  });
}

void text_release(char* text) noexcept {
  delete[] text;
}

fsdp2_status* shard(const fsdp2_shard_args* given, fsdp2_engine** out) noexcept {
  return guard([&] {
    require_argument(out, "out") = nullptr;
    auto engine = std::make_unique<fsdp2_engine>();
    const auto args = read_struct(given, "fsdp2_shard_args");
    const auto& config = require_argument(args.config, "fsdp2_shard_args.config").config;
    const auto& module = require_argument(static_cast<const Module*>(args.module), "fsdp2_shard_args.module");
    auto communicator = communicator_of(args, device_of(module), timeout_from_seconds(config.options.debug.timeout_s));
    engine->module = ShardedModule::shard(
        module, std::move(communicator),
        [&](const ModuleTree& tree, int64_t world) {
          Plan plan = make_plan(tree, config, world);
          engine->plan_text = to_table(plan);
          return plan;
        },
        [](bool warning, const std::string& text) { log_to_host(warning, text); });
    *out = engine.release();
  });
}

fsdp2_status* engine_detach(fsdp2_engine* engine) noexcept {
  return guard([&] { module_of(engine).detach(); });
}

void engine_release(fsdp2_engine* engine) noexcept {
  delete engine;
}

fsdp2_status* engine_visit_parameters(const fsdp2_engine* engine, fsdp2_parameter_visitor visitor,
                                      void* user) noexcept {
  return guard([&] {
    if (visitor == nullptr) throw Error(ErrorCode::kInvalidArgument, "visitor is null");
    for (const NamedTensor& parameter : module_of(engine).parameters()) {
      visitor(user, parameter.name.data(), parameter.name.size(), &parameter.tensor);
    }
  });
}

fsdp2_status* engine_statistics(const fsdp2_engine* engine, fsdp2_statistics* out) noexcept {
  return guard([&] { write_struct(out, to_c(module_of(engine).statistics()), "fsdp2_statistics"); });
}

fsdp2_status* engine_reset_statistics(fsdp2_engine* engine) noexcept {
  return guard([&] { module_of(engine).reset_statistics(); });
}

const char* engine_plan_text(const fsdp2_engine* engine) noexcept {
  return engine == nullptr ? "" : engine->plan_text.c_str();
}

fsdp2_status* engine_mark_written(fsdp2_engine* engine) noexcept {
  return guard([&] { module_of(engine).mark_written(); });
}

fsdp2_status* engine_gather(fsdp2_engine* engine) noexcept {
  return guard([&] { module_of(engine).begin_local_use(); });
}

fsdp2_status* engine_release_gathered(fsdp2_engine* engine, int32_t write_back) noexcept {
  return guard([&] { module_of(engine).end_local_use(write_back != 0); });
}

}  // namespace fsdp2::entries
