// Tensors that are sharded for a host that writes its forward in C++ (torch::nn::Module): no graphs to read or to
// change, so the host says by names what the modules are, and by enter and exit where a module's forward begins and
// ends.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugin/engine/engine.hpp"
#include "plugin/engine/unit_call.hpp"
#include "plugin/sharded_module.hpp"

namespace fsdp2 {

/// The tree that dotted names spell out. The same tensor under two names is tied. Throws Error (kInvalidArgument),
/// naming the parameter, for tensors that cannot be sharded in place: sharded already, not leaves, views, inference
/// tensors, not contiguous, without dimensions, sharing their memory, or on another device than the first; and for a
/// name that is empty or occurs twice.
ModuleTree tree_of(std::span<const NamedTensor> parameters);

/// Where the first one lies; the CPU where there is none.
c10::Device device_of(std::span<const NamedTensor> parameters);

class ShardedTensors final : public Engine {
 public:
  /// As ShardedModule::shard. The tensors stay the same objects and show shards at rest.
  static std::unique_ptr<ShardedTensors> shard(std::span<const NamedTensor> parameters,
                                               std::shared_ptr<Communicator> communicator, const MakePlan& make_plan,
                                               const LogFunction& log);

  /// The tensors are plain and whole afterwards.
  void detach() override;

  /// Opens the unit at `path` (collective) and returns the call, or null where the module is no unit, or is inside a
  /// call of itself, or the parameters are gathered for local use. Throws Error (kNotFound) with the nearest path.
  c10::intrusive_ptr<UnitCall> enter(const std::string& path);

 private:
  ShardedTensors(Plan plan, std::shared_ptr<Communicator> communicator, c10::Device device,
                 std::vector<std::vector<ParameterHome>> homes, const ModuleTree& tree, const LogFunction& log);

  std::map<std::string, std::optional<size_t>> modules_;  // every path, and the unit it is
};

}  // namespace fsdp2
