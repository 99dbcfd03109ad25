// Runs a plan: the units of one model, and what a host asks of all of them together. Knows nothing of where the model
// comes from: ShardedModule drives it from TorchScript's operators, ShardedTensors from calls of the host.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugin/engine/communicator.hpp"
#include "plugin/engine/log_function.hpp"
#include "plugin/engine/named_tensor.hpp"
#include "plugin/engine/parameter_home.hpp"
#include "plugin/engine/statistics.hpp"
#include "plugin/engine/unit.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// The part of a parameter that this rank owns.
struct ShardGeometry {
  std::string name;
  at::Tensor shard;
  std::vector<int64_t> shape;  // of the full parameter
  ShardRange range;            // of the flattened full parameter
  bool whole_rows = true;      // the shard has the shape [rows, ...]; else it is flat
};

class Engine {
 public:
  /// Cuts the parameters; `homes` has one list a planned unit, one home a planned parameter of it. The caller has made
  /// sure that all ranks start alike (same_start.hpp). Collective where a mesh of two dimensions needs groups.
  Engine(Plan plan, std::shared_ptr<Communicator> communicator, c10::Device device,
         std::vector<std::vector<ParameterHome>> homes, const LogFunction& log);
  virtual ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Gathers everything, gives plain tensors back. Collective. Fails if it ran before.
  virtual void detach();
  [[nodiscard]] bool is_detached() const;

  /// Puts full parameters, without gradients, into the module until end_local_use(): in between this rank may run
  /// forwards of its own, read and copy parameters, as of a plain module. Collective. Memory: the whole model.
  void begin_local_use();
  /// Shards again. `write_back`: what was written into the full parameters stays (every rank must have written the
  /// same); else it is lost. Local.
  void end_local_use(bool write_back);

  /// The sharded leaf tensors in plan order, each tied one once. None after detach().
  [[nodiscard]] std::vector<NamedTensor> parameters() const;
  [[nodiscard]] std::vector<ShardGeometry> geometry() const;
  /// The full tensor of which each rank gives its part, as large as the shard of parameter `name`, on all ranks or,
  /// where `only_rank` is not -1, on that one (undefined on others). Throws Error (kNotFound) with the nearest name,
  /// kInvalidArgument for another size. Collective.
  at::Tensor gather_tensor(const std::string& name, const at::Tensor& part, int64_t only_rank);

  /// See gradients.hpp. Those that change gradients check_step() first. Collective, all but the last.
  double gradient_norm(double p);
  double clip_gradient_norm(double max_norm, double p);
  /// By `gradient.clip_norm` of the configuration, with p = 2; the norm before. Unset, and nothing done, without the
  /// key.
  std::optional<double> clip_gradients();
  bool unscale_gradients(double scale);
  void clip_gradient_value(double limit);
  /// Those that accumulate without communication, too.
  void zero_gradients();
  /// Throws on every rank where one's gradients or shards were changed by others since backward: step_check.hpp.
  void check_step();

  /// Of the unit at `path` ("" is the root) and, with `recurse`, of those inside it: see Unit. For the backward passes
  /// to come. Throw Error (kNotFound) with the nearest path. All ranks must do the same.
  void set_gradient_sync(const std::string& path, bool recurse, bool on);
  void set_all_reduce(const std::string& path, bool recurse, bool on);
  /// 0: the number of ranks.
  void set_gradient_divisor(const std::string& path, bool recurse, double divisor);

  /// Off: the backward passes to come leave their last sums of gradients in flight, to end behind the next pass or in
  /// the next call here that reads gradients. Of the whole engine.
  void set_last_backward(bool last);

  [[nodiscard]] Statistics statistics() const;
  void reset_statistics();
  /// Frees the memory that gathers have left for those to come, and keeps none from now on: slower, and what is
  /// allocated is what is in use.
  void keep_no_unused_memory() { runtime_->pool->close(); }
  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  /// Kept units gather again at their next use.
  void mark_written();

  /// Starts the gather of the units, named as above, that are not kept and fresh; it ends in their finish_unshard(), or
  /// by itself where a forward needs it. Returns them. Memory only: slots show shards, as between all calls. Not in
  /// local use. Collective.
  std::vector<std::weak_ptr<Unit>> start_unshard(const std::string& path, bool recurse);
  /// Frees what is kept. kFailedPrecondition inside a forward or backward of one of the units: then none is. Local.
  void reshard(const std::string& path, bool recurse);
  /// From the next forward, or backward, on. The same on all ranks. Local.
  void set_reshard_after_forward(const std::string& path, bool recurse, bool reshard);
  void set_reshard_after_backward(const std::string& path, bool recurse, bool reshard);
  /// The units at the paths `ahead` are gathered when a forward, or backward, of the one at `path` begins, in place of
  /// the next `prefetch` ones; none: those again. A path that is no unit: kNotFound, itself: kInvalidArgument. The same
  /// on all ranks. Local.
  void set_prefetch(const std::string& path, const std::vector<std::string>& ahead, bool backward);

 protected:
  /// What autograd graphs keep alive forgets the module.
  void drop_slots();
  /// Throws Error (kFailedPrecondition) inside a forward or a local use, and after detach().
  void require_rest(const char* call) const;
  /// For the check of steps: what the engine itself has changed is no mistake of the host.
  void note_own_change();
  [[nodiscard]] Communicator& communicator() const { return *runtime_->communicator; }

 private:
  [[nodiscard]] std::vector<Unit*> units_at(const std::string& path, bool recurse) const;
  void require_attached(const char* call) const;
  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  /// The transport where ranks hold different parts of a gradient, else null.
  [[nodiscard]] Communicator* across() const;

  Plan plan_;
  c10::Device device_;
  std::shared_ptr<Runtime> runtime_;
  std::vector<std::shared_ptr<Unit>> units_;
};

}  // namespace fsdp2
