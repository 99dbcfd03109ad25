// The plugin for C++ hosts: header-only classes over plugin.h. C++17 and later. Link LibTorch and dl, never the plugin.
//
//   auto plugin = fsdp2::Plugin::load("libfsdp2_plugin.so");
//   auto engine = plugin.shard(module, plugin.config_from_file("train.toml"));
//   torch::optim::AdamW optimizer(engine.parameters(), 1e-3);
//   ...                                        // module.forward, loss.backward, optimizer.step as ever
//   engine.detach();                           // the plain module again, with the trained weights
//
// Every function throws fsdp2::Exception on a fault, unless it says noexcept. Marks as in plugin.h: [any] any thread,
// [trainer] one thread at a time for one engine, [collective] every rank calls it, in the same order.
// Faults inside module.forward() and loss.backward() arrive as std::runtime_error, as those of any operator do.
#ifndef FSDP2_PLUGIN_HPP
#define FSDP2_PLUGIN_HPP

#include <ATen/core/Tensor.h>
#include <fsdp2/plugin.h>
#include <torch/csrc/jit/api/module.h>
#include <fsdp2/detail/library.hpp>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace fsdp2 {
inline namespace v0_1 {

/// Options, read and checked; cannot change. Copies share one object. [any]
class Configuration {
 public:
  /// Every option as canonical TOML, which reads back to equal options.
  [[nodiscard]] std::string toml() const { return library_->api->config_toml(config_.get()); }
  /// The one warning of an adapter about obsolete keys, or "".
  [[nodiscard]] std::string warning() const { return library_->api->config_warning(config_.get()); }
  /// Remarks, each names its key.
  [[nodiscard]] std::vector<std::string> notes() const {
    std::vector<std::string> result;
    const size_t count = library_->api->config_note_count(config_.get());
    for (size_t i = 0; i < count; ++i) result.emplace_back(library_->api->config_note(config_.get(), i));
    return result;
  }

 private:
  friend class Plugin;
  Configuration(std::shared_ptr<detail::Library> library, fsdp2_config* config)
      : library_(std::move(library)), config_(config, library_->api->config_release) {}

  std::shared_ptr<detail::Library> library_;
  std::shared_ptr<fsdp2_config> config_;
};

class Engine;

/// Full parameters in a sharded module, until this is destroyed (Engine::gather). Must not outlive its engine.
class Gathered {
 public:
  Gathered(Gathered&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
  Gathered& operator=(Gathered&&) = delete;
  inline ~Gathered();

  /// Ends it as well, and keeps what was written into the full parameters; every rank must have written the same.
  /// [trainer]
  inline void write_back();

 private:
  friend class Engine;
  explicit Gathered(const Engine* engine) : engine_(engine) {}

  const Engine* engine_;
};

/// A sharded module. Moves, does not copy. Destroyed without detach() it leaves the module unusable: its slots hold
/// shards.
class Engine {
 public:
  /// This rank's sharded leaf tensors for an optimizer, in plan order, a tied parameter once; empty tensors where this
  /// rank owns no element. The same objects for the life of the engine. [trainer]
  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> result;
    for (auto& [name, tensor] : named_parameters()) result.push_back(std::move(tensor));
    return result;
  }

  /// The same with the names that the parameters have in the module. [trainer]
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_parameters() const {
    std::vector<std::pair<std::string, at::Tensor>> result;
    check(api().engine_visit_parameters(
        engine_.get(),
        [](void* user, const char* name, size_t length, const void* tensor) {
          static_cast<decltype(result)*>(user)->emplace_back(std::string(name, length),
                                                             *static_cast<const at::Tensor*>(tensor));
        },
        &result));
    return result;
  }

  /// Counters since shard() or the last reset_statistics(), on this rank. [trainer]
  [[nodiscard]] fsdp2_statistics statistics() const {
    fsdp2_statistics result{};
    result.struct_size = sizeof(result);
    check(api().engine_statistics(engine_.get(), &result));
    return result;
  }
  void reset_statistics() { check(api().engine_reset_statistics(engine_.get())); }

  [[nodiscard]] int64_t rank() const { return statistics().rank; }
  [[nodiscard]] int64_t world_size() const { return statistics().world_size; }

  /// The plan in force as a table for a person. [any]
  [[nodiscard]] std::string plan_text() const { return api().engine_plan_text(engine_.get()); }

  /// Gathers every parameter and gives the module its plain tensors and methods back; once, and this engine is then
  /// only good to be destroyed. Optimizers made before keep the shards. [trainer, collective]
  void detach() { check(api().engine_detach(engine_.get())); }

  /// Full parameters, without gradients, in the module on every rank while the result lives. In between each rank may
  /// run any number of forwards on its own (validation on rank 0), and read, copy and write the parameters, as of a
  /// plain module; what it writes is lost unless Gathered::write_back() is called. backward() is refused. Takes the
  /// memory of the whole model. The engine must not move meanwhile. [trainer, collective]
  [[nodiscard]] Gathered gather() {
    check(api().engine_gather(engine_.get()));
    return Gathered(this);
  }

  /// To call after shards were written in a way that autograd's version counters do not see (through `.data()`, by
  /// another library): else a unit that is kept whole goes on with the old values. [trainer]
  void mark_written() { check(api().engine_mark_written(engine_.get())); }

 private:
  friend class Plugin;
  friend class Gathered;
  struct Release {
    std::shared_ptr<detail::Library> library;
    void operator()(fsdp2_engine* engine) const { library->api->engine_release(engine); }
  };
  Engine(std::shared_ptr<detail::Library> library, fsdp2_engine* engine)
      : engine_(engine, Release{std::move(library)}) {}

  [[nodiscard]] const fsdp2_api& api() const { return *engine_.get_deleter().library->api; }
  void check(fsdp2_status* status) const { engine_.get_deleter().library->check(status); }

  std::unique_ptr<fsdp2_engine, Release> engine_;
};

inline Gathered::~Gathered() {
  if (engine_ == nullptr) return;
  const fsdp2_api& api = engine_->api();
  api.status_release(api.engine_release_gathered(engine_->engine_.get(), 0));
}

inline void Gathered::write_back() {
  const Engine* engine = std::exchange(engine_, nullptr);
  engine->check(engine->api().engine_release_gathered(engine->engine_.get(), 1));
}

/// A name and one sentence.
struct CatalogueEntry {
  std::string name;
  std::string help;
};

/// The loaded library. Copies share it. It stays in memory when the last copy is gone, since compiled graphs may need
/// it.
class Plugin {
 public:
  /// Opens the library and proves that it fits this program before any C++ object is touched. Throws
  /// FSDP2_VERSION_MISMATCH with both versions and what to rebuild or set, FSDP2_NOT_FOUND where there is no such file,
  /// FSDP2_ALREADY_LOADED where another file of the plugin is active in this process. `log` receives remarks until the
  /// last copy, configuration and engine are gone. [any]
  static Plugin load(const std::string& path, LogCallback log = nullptr) {
    return Plugin(std::make_shared<detail::Library>(path, std::move(log)));
  }

  /// Absolute path of the file, and its version, "0.1.0".
  [[nodiscard]] const std::string& path() const noexcept { return library_->path(); }
  [[nodiscard]] std::string version() const { return library_->manifest->plugin_version; }

  /// Strategies that `strategy` in the options can name. [any]
  [[nodiscard]] std::vector<CatalogueEntry> strategies() const {
    return catalogue(api().strategy_count, api().strategy_name, api().strategy_help);
  }
  /// Configurations of other hosts that `dialect` in the options can name. [any]
  [[nodiscard]] std::vector<CatalogueEntry> dialects() const {
    return catalogue(api().dialect_count, api().dialect_name, api().dialect_help);
  }

  /// Options from the table [fsdp] of a TOML file. Overrides are "key=value" below [fsdp], for example
  /// "wrap.policy=size", and win. FSDP2_CONFIG with file, line, column, key and the nearest valid name. [any]
  [[nodiscard]] Configuration config_from_file(const std::string& path,
                                               const std::vector<std::string>& overrides = {}) const {
    return configuration(path.c_str(), nullptr, overrides);
  }
  /// The same from TOML text. [any]
  [[nodiscard]] Configuration config_from_text(const std::string& toml,
                                               const std::vector<std::string>& overrides = {}) const {
    return configuration(nullptr, toml.c_str(), overrides);
  }

  /// What shard() would do on that number of ranks, as a table for a person. Changes nothing, needs no ranks. [any]
  [[nodiscard]] std::string plan_text(const torch::jit::Module& module, const Configuration& config,
                                      int64_t world_size) const {
    fsdp2_plan_args args{};
    args.struct_size = sizeof(args);
    args.config = config.config_.get();
    args.module = &module;
    args.world_size = world_size;
    char* text = nullptr;
    library_->check(api().plan_text(&args, &text));
    const std::unique_ptr<char, void (*)(char*)> owner(text, api().text_release);
    return text;
  }

  /// Shards the module in place among the ranks that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name (torchrun sets
  /// them). `backend`: "gloo", "nccl", or "" = by the device of the parameters. On a fault before anything is
  /// cut (all but running out of memory) the module is as it was. FSDP2_INVALID_ARGUMENT names a missing variable.
  /// [trainer, collective]
  [[nodiscard]] Engine shard(torch::jit::Module& module, const Configuration& config,
                             const std::string& backend = "") const {
    return shard_with(module, config, FSDP2_COMMUNICATOR_ENVIRONMENT, nullptr,
                      backend.empty() ? nullptr : backend.c_str());
  }

  /// The same among the ranks of a group: c10::intrusive_ptr to a c10d::Backend (ProcessGroupGloo, ProcessGroupNCCL) or
  /// to a c10d::ProcessGroup. The engine keeps a reference; no one else may use the group's point-to-point calls with
  /// tags from 0x46530000 on. [trainer, collective]
  template <typename Group>
  [[nodiscard]] Engine shard(torch::jit::Module& module, const Configuration& config,
                             const c10::intrusive_ptr<Group>& group) const {
    if constexpr (std::is_base_of_v<c10d::Backend, Group>) {
      const c10::intrusive_ptr<c10d::Backend> backend = group;
      return shard_with(module, config, FSDP2_COMMUNICATOR_C10D_BACKEND, &backend, nullptr);
    } else {
      static_assert(std::is_base_of_v<c10d::ProcessGroup, Group>,
                    "shard() takes a c10d::Backend or a c10d::ProcessGroup");
      const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group;
      return shard_with(module, config, FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP, &process_group, nullptr);
    }
  }

  /// The C table, for entries that have no function here.
  [[nodiscard]] const fsdp2_api& api() const noexcept { return *library_->api; }

 private:
  explicit Plugin(std::shared_ptr<detail::Library> library) : library_(std::move(library)) {}

  template <typename Text>
  static std::vector<CatalogueEntry> catalogue(size_t (*count)(), Text name, Text help) {
    std::vector<CatalogueEntry> result;
    const size_t size = count();
    for (size_t i = 0; i < size; ++i) result.push_back({name(i), help(i)});
    return result;
  }

  [[nodiscard]] Configuration configuration(const char* path, const char* text,
                                            const std::vector<std::string>& overrides) const {
    std::vector<const char*> pointers;
    pointers.reserve(overrides.size());
    for (const std::string& text_of_one : overrides) pointers.push_back(text_of_one.c_str());
    fsdp2_config_args args{};
    args.struct_size = sizeof(args);
    args.path = path;
    args.text = text;
    args.overrides = pointers.data();
    args.override_count = pointers.size();
    fsdp2_config* config = nullptr;
    library_->check(api().config_load(&args, &config));
    return Configuration(library_, config);
  }

  [[nodiscard]] Engine shard_with(torch::jit::Module& module, const Configuration& config, fsdp2_communicator_kind kind,
                                  const void* communicator, const char* backend) const {
    fsdp2_shard_args args{};
    args.struct_size = sizeof(args);
    args.config = config.config_.get();
    args.module = &module;
    args.communicator_kind = kind;
    args.communicator = communicator;
    args.backend = backend;
    fsdp2_engine* engine = nullptr;
    library_->check(api().shard(&args, &engine));
    return Engine(library_, engine);
  }

  std::shared_ptr<detail::Library> library_;
};

}  // namespace v0_1
}  // namespace fsdp2

#endif  // FSDP2_PLUGIN_HPP
