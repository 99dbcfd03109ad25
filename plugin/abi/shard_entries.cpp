// Entries that make plans and engines.
#include <c10/util/Type.h>
#include <fsdp2/launch_environment.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "plugin/abi/arguments.hpp"
#include "plugin/abi/callback_communicator.hpp"
#include "plugin/abi/config_handle.hpp"
#include "plugin/abi/engine_handle.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/given_groups.hpp"
#include "plugin/abi/status.hpp"
#include "plugin/engine/c10d_environment.hpp"
#include "plugin/sharded_module.hpp"
#include "plugin/sharded_tensors.hpp"
#include "plugin/wrap/planner.hpp"
#include "registry/plan.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2::entries {
namespace {

using torch::jit::Module;

/// Texts that hosts hold, so that one is not freed twice. Never destroyed, as Handles.
class Texts {
 public:
  static Texts& live() {
    static auto& texts = *new Texts;
    return texts;
  }
  char* add(const std::string& text) {
    auto copy = std::make_unique<char[]>(text.size() + 1);
    std::memcpy(copy.get(), text.c_str(), text.size() + 1);
    char* const address = copy.get();
    const std::scoped_lock lock(mutex_);
    texts_.emplace(address, std::move(copy));
    return address;
  }
  void remove(const char* text) noexcept {
    const std::scoped_lock lock(mutex_);
    texts_.erase(text);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const char*, std::unique_ptr<char[]>> texts_;
};

/// The c10d object that the host points to. The two classes are siblings, and read as the other one it would be foreign
/// memory: so it is asked for its class first. Null where the host's pointer is.
template <typename Class>
c10::intrusive_ptr<Class> c10d_object(const void* pointer, const std::string& name, const char* wanted) {
  const auto& object =
      require_argument(static_cast<const c10::intrusive_ptr<torch::CustomClassHolder>*>(pointer), name.c_str());
  if (!object) return {};
  if (reinterpret_cast<uintptr_t>(object.get()) < kSizesEnd) {
    throw Error(ErrorCode::kInvalidArgument, name + " is no c10d object; for a fsdp2_communicator, communicator_kind " +
                                                 "is FSDP2_COMMUNICATOR_CALLBACKS");
  }
  auto* const given = dynamic_cast<Class*>(object.get());
  if (given == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, name + " is no " + wanted + ", as communicator_kind says, but a " +
                                                 c10::demangle(typeid(*object).name()));
  }
  return c10::intrusive_ptr<Class>::reclaim_copy(given);
}

/// The tag says what the pointer is. `field` names it in errors.
std::shared_ptr<Communicator> given_communicator(fsdp2_communicator_kind kind, const void* given,
                                                 const std::string& field, c10::Device device, Timeout timeout,
                                                 int64_t world_rank) {
  switch (kind) {
    case FSDP2_COMMUNICATOR_C10D_BACKEND:
      return C10dCommunicator::from_backend(c10d_object<c10d::Backend>(given, field, "c10d::Backend"), timeout,
                                            /*store=*/{}, /*group=*/"", world_rank);
    case FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP:
      return C10dCommunicator::from_process_group(c10d_object<c10d::ProcessGroup>(given, field, "c10d::ProcessGroup"),
                                                  device.type(), timeout, world_rank);
    case FSDP2_COMMUNICATOR_CALLBACKS:
      return std::make_shared<CallbackCommunicator>(
          read_struct(static_cast<const fsdp2_communicator*>(given), "fsdp2_communicator"), timeout, world_rank);
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  field + "_kind is " + std::to_string(kind) + ", which this version does not know");
  }
}

/// `Args` is one of the two structs that choose a communicator, `name` what it is called.
template <typename Args>
std::shared_ptr<Communicator> communicator_of(const Args& args, const std::string& name, c10::Device device,
                                              Timeout timeout) {
  const std::string pointer = name + ".communicator";
  if (args.reserved != 0) throw Error(ErrorCode::kInvalidArgument, name + ".reserved is not 0");
  if (args.backend != nullptr && args.communicator_kind != FSDP2_COMMUNICATOR_ENVIRONMENT) {
    throw Error(ErrorCode::kInvalidArgument, name + ".backend is only for a communicator made from the environment");
  }
  if ((args.shard_communicator == nullptr) != (args.replicate_communicator == nullptr)) {
    throw Error(ErrorCode::kInvalidArgument,
                name + " has one of shard_communicator and replicate_communicator; give both, or none");
  }
  if (args.communicator_kind == FSDP2_COMMUNICATOR_ENVIRONMENT) {
    if (args.communicator != nullptr || args.shard_communicator != nullptr) {
      throw Error(ErrorCode::kInvalidArgument, pointer + " is set, but communicator_kind does not say what it is");
    }
    return communicator_from_environment(args.backend != nullptr ? args.backend : "", device, timeout);
  }
  const auto made_of = [&](const void* given, const std::string& field, int64_t world_rank) {
    return given_communicator(args.communicator_kind, given, name + "." + field, device, timeout, world_rank);
  };
  auto world = made_of(args.communicator, "communicator", -1);
  if (args.shard_communicator == nullptr) return world;
  const int64_t rank = world->rank();
  return std::make_shared<GivenGroups>(std::move(world), made_of(args.shard_communicator, "shard_communicator", rank),
                                       made_of(args.replicate_communicator, "replicate_communicator", rank));
}

Timeout timeout_of(const Config& config) {
  return timeout_from_seconds(config.options.debug.timeout_s);
}

/// As far as a launcher has told.
std::optional<int64_t> ranks_of_this_node() {
  try {
    const auto launched = launch_environment();
    return launched && launched->local_world_size ? std::optional<int64_t>(*launched->local_world_size) : std::nullopt;
  } catch (const std::invalid_argument&) {  // variables of no launcher that this host has relied on
    return std::nullopt;
  }
}

/// Notes the plan in the handle, too.
MakePlan plan_maker(const Config& config, HeldEngine& engine) {
  return [&](const ModuleTree& tree, int64_t world) {
    Plan plan = make_plan(tree, config, world, ranks_of_this_node());
    engine.plan_text = to_table(plan);
    return plan;
  };
}

LogFunction host_log() {
  return [](bool warning, const std::string& text) { log_to_host(warning, text); };
}

/// Another host's file often asks for clipping, by its defaults too; one that was not written for it would not clip.
void note_clipping(const Config& config) {
  if (!config.options.gradient.clip_norm) return;
  const Source source = source_of(config, "gradient.clip_norm");
  const std::string written = source.key.empty() ? "" : " (from `" + source.key + "`)";
  log_to_host(false, place(source) + "`gradient.clip_norm = " + value_text(Value(*config.options.gradient.clip_norm)) +
                         "`" + written +
                         " takes effect by `engine.clip_gradients()` (engine_clip_gradients in C): the host " +
                         "has to call it between backward and the optimizer's step");
}

std::vector<NamedTensor> parameters_of(const fsdp2_shard_tensors_args& args) {
  if (args.count > 0) {
    require_argument(args.names, "fsdp2_shard_tensors_args.names");
    require_argument(args.tensors, "fsdp2_shard_tensors_args.tensors");
  }
  std::vector<NamedTensor> parameters;
  for (size_t i = 0; i < args.count; ++i) {
    const std::string place = "[" + std::to_string(i) + "]";
    const char* name = &require_argument(args.names[i], ("fsdp2_shard_tensors_args.names" + place).c_str());
    parameters.push_back({name, require_argument(static_cast<const at::Tensor*>(args.tensors[i]),
                                                 ("fsdp2_shard_tensors_args.tensors" + place).c_str())});
  }
  return parameters;
}

/// The host's own borders of units win over those of the configuration.
Config with_units(Config config, const fsdp2_shard_tensors_args& args) {
  if (args.units == nullptr) return config;
  config.options.wrap = {};
  config.options.wrap.policy = WrapPolicy::kNone;
  for (size_t i = 0; i < args.unit_count; ++i) {
    const std::string place = "fsdp2_shard_tensors_args.units[" + std::to_string(i) + "]";
    const std::string path = &require_argument(args.units[i], place.c_str());
    if (!path.empty()) config.options.wrap.modules.push_back(path);  // the root is a unit anyway
  }
  if (!config.options.wrap.modules.empty()) config.options.wrap.policy = WrapPolicy::kModules;
  return config;
}

}  // namespace

fsdp2_status* plan_text(const fsdp2_plan_args* given, char** out) noexcept {
  return guard([&] {
    require_argument(out, "out") = nullptr;
    require_initialized("plan_text");
    const auto args = read_struct(given, "fsdp2_plan_args");
    const auto config = ConfigHandles::live().require(args.config, "fsdp2_plan_args.config");
    const auto& module = require_argument(static_cast<const Module*>(args.module), "fsdp2_plan_args.module");
    if (args.world_size < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  "fsdp2_plan_args.world_size is " + std::to_string(args.world_size) + ", expected at least 1");
    }
    const auto node = args.ranks_per_node > 0 ? std::optional<int64_t>(args.ranks_per_node) : std::nullopt;
    const auto plan = [&](const ModuleTree& tree, int64_t world) {
      return make_plan(tree, config->config, world, node);
    };
    *out = Texts::live().add(to_table(plan_of(module, plan, args.world_size)));
  });
}

void text_release(char* text) noexcept {
  Texts::live().remove(text);
}

fsdp2_status* shard(const fsdp2_shard_args* given, fsdp2_engine** out) noexcept {
  return guard([&] {
    require_argument(out, "out") = nullptr;
    auto engine = std::make_shared<HeldEngine>();
    const auto args = read_struct(given, "fsdp2_shard_args");
    const auto held = ConfigHandles::live().require(args.config, "fsdp2_shard_args.config");
    const Config& config = held->config;
    const auto& module = require_argument(static_cast<const Module*>(args.module), "fsdp2_shard_args.module");
    auto communicator = communicator_of(args, "fsdp2_shard_args", device_of(module), timeout_of(config));
    engine->engine = ShardedModule::shard(module, std::move(communicator), plan_maker(config, *engine), host_log());
    note_clipping(config);
    *out = EngineHandles::live().add(std::move(engine));
  });
}

fsdp2_status* shard_tensors(const fsdp2_shard_tensors_args* given, fsdp2_engine** out) noexcept {
  return guard([&] {
    require_argument(out, "out") = nullptr;
    auto engine = std::make_shared<HeldEngine>();
    const auto args = read_struct(given, "fsdp2_shard_tensors_args");
    const auto options = ConfigHandles::live().require(args.config, "fsdp2_shard_tensors_args.config");
    const std::vector<NamedTensor> parameters = parameters_of(args);
    const Config config = with_units(options->config, args);
    auto communicator = communicator_of(args, "fsdp2_shard_tensors_args", device_of(parameters), timeout_of(config));
    engine->engine =
        ShardedTensors::shard(parameters, std::move(communicator), plan_maker(config, *engine), host_log());
    note_clipping(config);
    *out = EngineHandles::live().add(std::move(engine));
  });
}

}  // namespace fsdp2::entries
