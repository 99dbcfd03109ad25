// A scripted module that is sharded: the whole of what a host does with one, in C++. The C ABI is a thin cover over
// this.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/engine/communicator.hpp"
#include "plugin/engine/statistics.hpp"
#include "registry/module_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// Receives remarks for the host; `warning` is false for information.
using LogFunction = std::function<void(bool warning, const std::string& text)>;

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The module as planning reads it. Throws Error for a module that is sharded, or empty.
ModuleTree tree_of(const torch::jit::Module& module);

/// Where the parameters lie; the CPU for a module that has none. Throws Error for an empty module.
c10::Device device_of(const torch::jit::Module& module);

class ShardedModule {
 public:
  /// Makes the plan with `make_plan` from the module's tree and shards `module` in place. Collective. On an error
  /// before anything is cut (all but running out of memory) the module is as it was. `make_plan` is called once, with
  /// the tree of the module and the number of ranks.
  static std::unique_ptr<ShardedModule> shard(const torch::jit::Module& module,
                                              std::shared_ptr<Communicator> communicator,
                                              const std::function<Plan(const ModuleTree&, int64_t world)>& make_plan,
                                              const LogFunction& log);

  /// Leaves the module unusable unless detach() ran before.
  ~ShardedModule();
  ShardedModule(const ShardedModule&) = delete;
  ShardedModule& operator=(const ShardedModule&) = delete;

  /// Gathers everything, gives the module its plain tensors and methods back. Collective. Fails if it ran before.
  void detach();

  /// Puts full parameters, without gradients, into the module until end_local_use(): in between this rank may run
  /// forwards of its own, read and copy parameters, as of a plain module. Collective. Memory: the whole model.
  void begin_local_use();
  /// Shards again. `write_back`: what was written into the full parameters stays (every rank must have written the
  /// same); else it is lost. Local.
  void end_local_use(bool write_back);

  /// The sharded leaf tensors in plan order, each tied one once. None after detach().
  [[nodiscard]] std::vector<NamedTensor> parameters() const;
  [[nodiscard]] Statistics statistics() const;
  void reset_statistics();
  [[nodiscard]] const Plan& plan() const;
  /// Kept units gather again at their next use.
  void mark_written();

 private:
  struct Impl;
  explicit ShardedModule(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp2
