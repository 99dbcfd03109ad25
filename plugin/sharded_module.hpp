// A scripted module that is sharded: the whole of what a host does with one, in C++. The C ABI is a thin cover over
// this.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <vector>

#include "plugin/engine/engine.hpp"
#include "registry/module_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

struct Binding;
struct BoundTree;
class MethodReplacement;

/// Called once, with the tree of the model and the number of ranks.
using MakePlan = std::function<Plan(const ModuleTree&, int64_t world)>;

/// What shard() would do. Throws Error for what it would refuse: a module that is sharded, or empty; units in forks.
Plan plan_of(const torch::jit::Module& module, const MakePlan& make_plan, int64_t world);

/// Where the parameters lie; the CPU for a module that has none. Throws Error for an empty module.
c10::Device device_of(const torch::jit::Module& module);

class ShardedModule final : public Engine {
 public:
  /// Makes the plan with `make_plan` from the module's tree and shards `module` in place. Collective. On an error
  /// before anything is cut (all but running out of memory) the module is as it was.
  static std::unique_ptr<ShardedModule> shard(const torch::jit::Module& module,
                                              std::shared_ptr<Communicator> communicator, const MakePlan& make_plan,
                                              const LogFunction& log);

  /// Leaves the module unusable unless detach() ran before.
  ~ShardedModule() override;

  /// The module's methods are the original ones afterwards.
  void detach() override;

  /// Writes the module as a plain TorchScript file while it stays sharded: `source`, the file it was loaded from, with
  /// today's parameters and buffers. Rank 0 reads and writes files, and holds one full parameter at a time. The target
  /// appears when it is whole. Throws Error on every rank where one fails. Collective.
  void export_to(const std::string& source, const std::string& target);
  /// Takes parameters and buffers from a TorchScript file of the same model, each rank its own parts; optimizer state
  /// and gradients stay. Nothing is changed where a rank has a fault, which is then one on every rank. Collective.
  void load_from(const std::string& source);

 private:
  using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

  ShardedModule(Plan plan, std::shared_ptr<Communicator> communicator, c10::Device device, Binding& binding,
                BoundTree& bound, std::unique_ptr<MethodReplacement> methods, const LogFunction& log);
  void leave();
  /// What every rank holds whole: buffers, and parameters that the plan ignores.
  [[nodiscard]] std::vector<NamedTensor> whole_tensors() const;

  std::vector<ObjectPtr> objects_;
  std::unique_ptr<MethodReplacement> methods_;
};

}  // namespace fsdp2
