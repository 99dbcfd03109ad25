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

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
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

/// The ranks of an engine, and how they talk to each other.
class Ranks {
 public:
  /// Those that torchrun, mpirun or srun started, by the environment variables that they set (launch_environment.hpp).
  /// `backend`: "gloo", "nccl", or "" = by the device of the parameters. FSDP2_INVALID_ARGUMENT names variables that
  /// are missing, wrong or contradict one another.
  Ranks(std::string backend = "") : backend_(std::move(backend)) {}  // NOLINT(*-explicit-*)
  Ranks(const char* backend) : backend_(backend) {}                  // NOLINT(*-explicit-*)

  /// Those of a c10d::Backend (ProcessGroupGloo, ProcessGroupNCCL) or of a c10d::ProcessGroup. The engine keeps a
  /// reference; no one else may use the group's point-to-point calls with tags from 0x46530000 on.
  template <typename Group>
  Ranks(const c10::intrusive_ptr<Group>& group) {  // NOLINT(*-explicit-*)
    if constexpr (std::is_base_of_v<c10d::Backend, Group>) {
      c10d_backend_ = group;
      kind_ = FSDP2_COMMUNICATOR_C10D_BACKEND;
    } else {
      static_assert(std::is_base_of_v<c10d::ProcessGroup, Group>, "ranks are a c10d::Backend or a c10d::ProcessGroup");
      process_group_ = group;
      kind_ = FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP;
    }
  }

  /// Those of a transport of the host's own (MpiCommunicator::table() of fsdp2/mpi.h): its context must outlive the
  /// engine.
  Ranks(const fsdp2_communicator& callbacks)  // NOLINT(*-explicit-*)
      : kind_(FSDP2_COMMUNICATOR_CALLBACKS), callbacks_(callbacks) {}

 private:
  friend class Plugin;
  template <typename Args>
  void write_to(Args& args) const {
    args.communicator_kind = kind_;
    if (kind_ == FSDP2_COMMUNICATOR_C10D_BACKEND) args.communicator = &c10d_backend_;
    if (kind_ == FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP) args.communicator = &process_group_;
    if (kind_ == FSDP2_COMMUNICATOR_CALLBACKS) args.communicator = &callbacks_;
    if (!backend_.empty()) args.backend = backend_.c_str();
  }

  fsdp2_communicator_kind kind_ = FSDP2_COMMUNICATOR_ENVIRONMENT;
  std::string backend_;
  c10::intrusive_ptr<c10d::Backend> c10d_backend_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  fsdp2_communicator callbacks_{};
};

/// The part of a parameter that this rank owns.
struct ShardGeometry {
  std::string name;
  at::Tensor shard;            // the sharded leaf
  std::vector<int64_t> shape;  // of the full parameter
  int64_t begin = 0;           // the shard is elements [begin, end) of the flattened full parameter
  int64_t end = 0;
  bool whole_rows = false;  // the shard has the shape [rows, ...]; else it begins or ends inside a row and is flat
};

/// A module of Plugin::shard_tensors() between enter and exit of its forward. Destroyed without exit() (the forward
/// threw) it puts the unit back to rest.
class Call {
 public:
  /// `outputs` are what the forward gave; each is replaced by the tensor for the caller. Once. [trainer]
  template <typename... Tensors>
  void exit(Tensors&... outputs) {
    const std::array<void*, sizeof...(outputs)> tensors{&as_tensor(outputs)...};
    library_->check(library_->api->call_exit(call_.get(), tensors.data(), tensors.size()));
  }

 private:
  friend class Engine;
  Call(std::shared_ptr<detail::Library> library, fsdp2_call* call)
      : library_(std::move(library)), call_(call, library_->api->call_release) {}
  static at::Tensor& as_tensor(at::Tensor& tensor) { return tensor; }

  std::shared_ptr<detail::Library> library_;
  std::unique_ptr<fsdp2_call, void (*)(fsdp2_call*)> call_;
};

/// Gathers that Engine::start_unshard() started. Dropping it leaves them to the forwards that need them.
class UnshardInFlight {
 public:
  /// [trainer]
  void wait() { library_->check(library_->api->unshard_wait(unshard_.get())); }

 private:
  friend class Engine;
  UnshardInFlight(std::shared_ptr<detail::Library> library, fsdp2_unshard* unshard)
      : library_(std::move(library)), unshard_(unshard, library_->api->unshard_release) {}

  std::shared_ptr<detail::Library> library_;
  std::unique_ptr<fsdp2_unshard, void (*)(fsdp2_unshard*)> unshard_;
};

class Engine;

/// Full parameters in a sharded module, until this is destroyed (Engine::gather). Must not outlive its engine.
class Gathered {
 public:
  Gathered(Gathered&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
  Gathered& operator=(Gathered&&) = delete;
  inline ~Gathered();

  /// Ends it as well, and keeps what was written into the full parameters, or was put in their place (set_data,
  /// torch::load); every rank must have written the same. Where something does not fit it throws, and nothing has
  /// ended. [trainer]
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

  // ---- gradients, between backward and the optimizer's step ----

  /// The norm of all gradients together, the same number on every rank: sum of |g|^p to the 1/p, or the greatest |g|
  /// where p is infinity; sums in fp64. [trainer, collective]
  [[nodiscard]] double gradient_norm(double p = 2) const {
    double norm = 0;
    check(api().engine_gradient_norm(engine_.get(), p, &norm));
    return norm;
  }
  /// Scales all gradients to that norm where theirs is above it, as torch.nn.utils.clip_grad_norm_; returns the norm
  /// before. [trainer, collective]
  double clip_gradient_norm(double max_norm, double p = 2) {
    double norm = 0;
    check(api().engine_clip_gradient_norm(engine_.get(), max_norm, p, &norm));
    return norm;
  }
  /// The same by `gradient.clip_norm` of the configuration, with p = 2. Without the key nothing is done, and nothing
  /// returned. A host that calls it before each step clips where a configuration asks for it. FSDP2_FAILED_PRECONDITION
  /// inside a pass, under gather(), and for what check_step() finds. [trainer, collective where it clips]
  std::optional<double> clip_gradients() {
    int32_t configured = 0;
    double norm = 0;
    check(api().engine_clip_gradients(engine_.get(), &configured, &norm));
    return configured != 0 ? std::optional<double>(norm) : std::nullopt;
  }
  /// Every element into [-limit, limit]. [trainer, collective while debug.check_steps counts]
  void clip_gradient_value(double limit) { check(api().engine_clip_gradient_value(engine_.get(), limit)); }
  /// Gradients are undefined afterwards. [trainer, collective where a pass left sums in flight]
  void zero_gradients() { check(api().engine_zero_gradients(engine_.get())); }
  /// Off: the backward passes to come keep full gradients on this rank, and the first one after it is on again reduces
  /// the sum: gradient accumulation without communication. Until then gradients of shards do not change, and
  /// zero_gradients() drops what is kept (an optimizer's own zero_grad does not). Of the unit at `path` ("": the root)
  /// and, with `recurse`, of the units inside it; all ranks must do the same. As PyTorch's set_requires_gradient_sync.
  /// [trainer]
  void set_gradient_sync(bool on, const std::string& path = "", bool recurse = true) {
    check(api().engine_set_gradient_sync(engine_.get(), path.c_str(), recurse ? 1 : 0, on ? 1 : 0));
  }
  /// Off: on a mesh of two dimensions the backward passes to come reduce over the ranks that shard, and the sums wait
  /// for the first pass after it is on again to be reduced over the replicas. As PyTorch's set_requires_all_reduce.
  /// [trainer]
  void set_all_reduce(bool on, const std::string& path = "", bool recurse = true) {
    check(api().engine_set_all_reduce(engine_.get(), path.c_str(), recurse ? 1 : 0, on ? 1 : 0));
  }
  /// Off: backward passes leave their last sums of gradients in flight, to end behind the next pass or in the next call
  /// here that reads gradients. For all but the last of several passes before a step. As PyTorch's
  /// set_is_last_backward. [trainer]
  void set_last_backward(bool on) { check(api().engine_set_last_backward(engine_.get(), on ? 1 : 0)); }
  /// Sums of gradients over ranks are divided by `divisor`; 0: by the number of ranks. As PyTorch's
  /// set_gradient_divide_factor. [trainer, collective where a pass left sums in flight]
  void set_gradient_divisor(double divisor, const std::string& path = "", bool recurse = false) {
    check(api().engine_set_gradient_divisor(engine_.get(), path.c_str(), recurse ? 1 : 0, divisor));
  }
  /// Divides all gradients by `scale`; true on every rank where any has one that is not finite: skip the step then.
  /// [trainer, collective]
  [[nodiscard]] bool unscale_gradients(double scale) {
    int32_t found = 0;
    check(api().engine_unscale_gradients(engine_.get(), scale, &found));
    return found != 0;
  }
  /// Throws on every rank where gradients or shards were changed since backward by anything but the calls here (a host
  /// that averages gradients itself). Forwards after a backward look at gradients by themselves, until an optimizer has
  /// stepped debug.check_steps times; then neither does anything. [trainer, collective]
  void check_step() { check(api().engine_check_step(engine_.get())); }

  // ---- shards one by one, for optimizers and files that need whole matrices ----

  /// In plan order. [trainer]
  [[nodiscard]] std::vector<ShardGeometry> geometry() const {
    std::vector<ShardGeometry> result;
    check(api().engine_visit_geometry(
        engine_.get(),
        [](void* user, const fsdp2_shard_geometry* g) {
          static_cast<decltype(result)*>(user)->push_back({g->name, *static_cast<const at::Tensor*>(g->tensor),
                                                           std::vector<int64_t>(g->shape, g->shape + g->dims), g->begin,
                                                           g->end, g->whole_rows != 0});
        },
        &result));
    return result;
  }
  /// The full tensor of which each rank gives its part: the shard of parameter `name`, its gradient, or an optimizer's
  /// state of it. `only_rank`: others get an undefined tensor. Back into a shard: full.flatten().slice(0, begin, end).
  /// [trainer, collective]
  [[nodiscard]] at::Tensor gather_tensor(const std::string& name, const at::Tensor& part,
                                         int64_t only_rank = -1) const {
    at::Tensor full;
    check(api().engine_gather_tensor(engine_.get(), name.c_str(), &part, only_rank, &full));
    return full;
  }

  /// Scripted modules only: writes the module as a plain TorchScript file while it stays sharded: `source`, the file it
  /// was loaded from, with today's parameters and buffers. Rank 0 alone reads and writes files, one full parameter in
  /// memory at a time; `target` appears when it is whole. [trainer, collective]
  void export_module(const std::string& source, const std::string& target) {
    check(api().engine_export_module(engine_.get(), source.c_str(), target.c_str()));
  }
  /// Scripted modules only: takes parameters and buffers from a TorchScript file of the same model, each rank its own
  /// parts; optimizer state and gradients stay. Nothing is changed where a rank has a fault. [trainer, collective]
  void load_weights(const std::string& source) { check(api().engine_load_weights(engine_.get(), source.c_str())); }

  // ---- units by hand: by the path of a unit ("" = the root), with `recurse` also those inside that module ----

  /// Gathers units that are not whole and fresh; the next forward finds them so. Only memory: slots show shards.
  /// [trainer, collective]
  void unshard(const std::string& path = "", bool recurse = false) {
    check(api().engine_unshard(engine_.get(), path.c_str(), recurse ? 1 : 0, nullptr));
  }
  /// Starts the same; wait() ends it, or the forward that needs it. [trainer, collective]
  [[nodiscard]] UnshardInFlight start_unshard(const std::string& path = "", bool recurse = false) {
    fsdp2_unshard* unshard = nullptr;
    check(api().engine_unshard(engine_.get(), path.c_str(), recurse ? 1 : 0, &unshard));
    return UnshardInFlight(engine_.get_deleter().library, unshard);
  }
  /// Frees units that are kept whole; an error inside their forward or backward. [trainer]
  void reshard(const std::string& path = "", bool recurse = false) {
    check(api().engine_reshard(engine_.get(), path.c_str(), recurse ? 1 : 0));
  }
  /// Whether units are freed after forward, in place of `reshard_after_forward`. [trainer]
  void set_reshard_after_forward(bool reshard, const std::string& path = "", bool recurse = true) {
    check(api().engine_set_reshard_after_forward(engine_.get(), path.c_str(), recurse ? 1 : 0, reshard ? 1 : 0));
  }
  /// Whether units are freed after backward (the default), or kept until the next forward has used them. [trainer]
  void set_reshard_after_backward(bool reshard, const std::string& path = "", bool recurse = true) {
    check(api().engine_set_reshard_after_backward(engine_.get(), path.c_str(), recurse ? 1 : 0, reshard ? 1 : 0));
  }

  /// Units to gather when a forward, or backward, of the one at `path` begins, in place of those that `prefetch` would;
  /// none: as `prefetch` says. The same on all ranks. [trainer]
  void set_forward_prefetch(const std::string& path, const std::vector<std::string>& ahead) {
    set_prefetch(path, ahead, false);
  }
  void set_backward_prefetch(const std::string& path, const std::vector<std::string>& ahead) {
    set_prefetch(path, ahead, true);
  }

  /// For engines of shard_tensors(): before the forward of the module at `path` ("" = the root). `inputs` are the
  /// tensors that go in; each is replaced by the one to compute with. A module that is no unit is passed through. Calls
  /// nest as forwards do. [trainer, collective]
  template <typename... Tensors>
  [[nodiscard]] Call enter(const std::string& path, Tensors&... inputs) {
    const std::array<void*, sizeof...(inputs)> tensors{&Call::as_tensor(inputs)...};
    fsdp2_call* call = nullptr;
    check(api().engine_enter(engine_.get(), path.c_str(), tensors.data(), tensors.size(), &call));
    return Call(engine_.get_deleter().library, call);
  }

 private:
  void set_prefetch(const std::string& path, const std::vector<std::string>& ahead, bool backward) {
    std::vector<const char*> paths;
    for (const std::string& next : ahead) paths.push_back(next.c_str());
    check(api().engine_set_prefetch(engine_.get(), path.c_str(), paths.data(), paths.size(), backward ? 1 : 0));
  }
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
  if (engine_ == nullptr) return;
  engine_->check(engine_->api().engine_release_gathered(engine_->engine_.get(), 1));
  engine_ = nullptr;
}

/// A name and one sentence.
struct CatalogueEntry {
  std::string name;
  std::string help;
};

/// The keys of another host, where there is no file: name and value. {"cpu_offload", "true"} is a keyword, with dots
/// where it lies in a map ({"zero_optimization.stage", "3"}); its value is TOML, or True, False or None, or else a bare
/// word. {"FSDP_VERSION", "2"}, in capitals, is a variable of an environment; its value is text. No `=` in a name.
using HostKeys = std::vector<std::pair<std::string, std::string>>;

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
  /// "wrap.policy=size", and win. `keys` stand in place of the file that `config` would name, with `dialect` in the
  /// TOML or the overrides. FSDP2_CONFIG with file, line, column, key and the nearest valid name. [any]
  [[nodiscard]] Configuration config_from_file(const std::string& path, const std::vector<std::string>& overrides = {},
                                               const std::optional<HostKeys>& keys = std::nullopt) const {
    return configuration(path.c_str(), nullptr, overrides, keys);
  }
  /// The same from TOML text. [any]
  [[nodiscard]] Configuration config_from_text(const std::string& toml, const std::vector<std::string>& overrides = {},
                                               const std::optional<HostKeys>& keys = std::nullopt) const {
    return configuration(nullptr, toml.c_str(), overrides, keys);
  }
  /// Options from the keys of another host alone: "accelerate", "transformers", "deepspeed" or "torch_fsdp1". The
  /// environment of the process is not read for them. FSDP2_CONFIG with the key and the nearest valid name. [any]
  [[nodiscard]] Configuration config_from_keys(const std::string& dialect, const HostKeys& keys,
                                               std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), "dialect=\"" + dialect + "\"");
    return configuration(nullptr, nullptr, overrides, keys);
  }

  /// What shard() would do on that number of ranks, as a table for a person. `ranks_per_node`: for the hybrid
  /// strategies without a mesh; 0 is not known. Changes nothing, needs no ranks. [any]
  [[nodiscard]] std::string plan_text(const torch::jit::Module& module, const Configuration& config, int64_t world_size,
                                      int64_t ranks_per_node = 0) const {
    fsdp2_plan_args args{};
    args.struct_size = sizeof(args);
    args.config = config.config_.get();
    args.module = &module;
    args.world_size = world_size;
    args.ranks_per_node = ranks_per_node;
    char* text = nullptr;
    library_->check(api().plan_text(&args, &text));
    const std::unique_ptr<char, void (*)(char*)> owner(text, api().text_release);
    return text;
  }

  /// Shards the module in place. On a fault before anything is cut (all but running out of memory) the module is as it
  /// was. [trainer, collective]
  [[nodiscard]] Engine shard(torch::jit::Module& module, const Configuration& config, const Ranks& ranks = {}) const {
    fsdp2_shard_args args{};
    args.struct_size = sizeof(args);
    args.config = config.config_.get();
    args.module = &module;
    ranks.write_to(args);
    fsdp2_engine* engine = nullptr;
    library_->check(api().shard(&args, &engine));
    return Engine(library_, engine);
  }

  /// For a host that writes its forward in C++: shards tensors in place, as `model->named_parameters().pairs()` gives
  /// them. They stay the same tensors, so modules and optimizers that hold them need no change; between
  /// Engine::enter(path) and Call::exit() of a module, and in its backward, they are whole. `units`: the paths of the
  /// modules that are units beside the root, as "layers.*"; without them those that the configuration's wrap.policy
  /// chooses. [trainer, collective]
  [[nodiscard]] Engine shard_tensors(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                                     const Configuration& config,
                                     const std::optional<std::vector<std::string>>& units = std::nullopt,
                                     const Ranks& ranks = {}) const {
    std::vector<const char*> names;
    std::vector<const void*> tensors;
    for (const auto& [name, tensor] : parameters) {
      names.push_back(name.c_str());
      tensors.push_back(&tensor);
    }
    const auto given_units = units.value_or(std::vector<std::string>{});
    const auto paths = pointers_to(given_units);
    fsdp2_shard_tensors_args args{};
    args.struct_size = sizeof(args);
    args.config = config.config_.get();
    args.names = names.data();
    args.tensors = tensors.data();
    args.count = parameters.size();
    args.units = units ? paths.data() : nullptr;
    args.unit_count = given_units.size();
    ranks.write_to(args);
    fsdp2_engine* engine = nullptr;
    library_->check(api().shard_tensors(&args, &engine));
    return Engine(library_, engine);
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

  /// With a null at the end, so that those of no texts are not null themselves.
  static std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    pointers.push_back(nullptr);
    return pointers;
  }

  [[nodiscard]] Configuration configuration(const char* path, const char* text,
                                            const std::vector<std::string>& overrides,
                                            const std::optional<HostKeys>& keys) const {
    std::vector<std::string> pairs;
    if (keys)
      for (const auto& [name, value] : *keys) pairs.push_back(name + "=" + value);
    const auto overrides_given = pointers_to(overrides);
    const auto pairs_given = pointers_to(pairs);
    fsdp2_config_args args{};
    args.struct_size = sizeof(args);
    args.path = path;
    args.text = text;
    args.overrides = overrides_given.data();
    args.override_count = overrides.size();
    args.host_keys = keys ? pairs_given.data() : nullptr;
    args.host_key_count = pairs.size();
    fsdp2_config* config = nullptr;
    library_->check(api().config_load(&args, &config));
    return Configuration(library_, config);
  }

  std::shared_ptr<detail::Library> library_;
};

}  // namespace v0_1
}  // namespace fsdp2

#endif  // FSDP2_PLUGIN_HPP
