// Training a module sharded and unsharded on the same global batches, and comparing the two.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugin/sharded_module.hpp"
#include "registry/options.hpp"
#include "tests/ranks/harness/rank_case.hpp"

namespace fsdp2::testing {

/// What a case asks of the planner.
struct Sharding {
  std::string strategy = "full_shard";
  std::vector<std::string> classes;              // of layers that become units; none and no modules: the root only
  std::vector<std::string> modules;              // or the paths of the units
  WrapPolicy policy = WrapPolicy::kTransformer;  // another one: for that policy without settings
  ReshardAfterForward reshard = ReshardAuto{};
  bool force_collectives = false;
  int64_t check_steps = 0;  // its collectives would be counted where a case counts
  int64_t order_check = 0;  // as are its
  Layout layout = Layout::kRagged;
  MeshOptions mesh = {};
  MixedPrecisionOptions precision = {};
  std::optional<double> divide_factor = {};
  std::optional<double> clip_norm = {};
  LoadMode load_mode = LoadMode::kSharded;
  PrefetchOptions prefetch = {};
  std::vector<std::string> ignored = {};  // modules
};

struct LogLine {
  bool warning;
  std::string text;
};

Plan plan_for(const ModuleTree& tree, const Sharding& sharding, int64_t world);
/// `communicator`: null for a new one. `log`: null where no line is expected to matter.
std::unique_ptr<ShardedModule> shard(RankContext& context, const torch::jit::Module& module, const Sharding& sharding,
                                     std::shared_ptr<Communicator> communicator = nullptr,
                                     std::vector<LogLine>* log = nullptr);

torch::jit::Module load(const RankContext& context, const std::string& model);

enum class Optimizer { kSgd, kMomentum, kAdamW };
std::unique_ptr<torch::optim::Optimizer> make_optimizer(Optimizer kind, std::vector<at::Tensor> parameters,
                                                        double rate);

/// One rank's loss in one step. All ranks' optimised loss is the mean over ranks.
using Loss = std::function<at::Tensor(torch::jit::Module& module, int64_t step, int64_t rank)>;

struct Recipe {
  Loss loss;
  Optimizer optimizer = Optimizer::kMomentum;
  double rate = 0.05;
  int64_t steps = 4;
  std::optional<double> clip_norm = {};  // of all gradients, before each step
};

using TensorsByName = std::map<std::string, at::Tensor>;

/// What the unsharded run of a recipe gave. Names are all names of a parameter; a tensor without a gradient is
/// undefined.
struct Reference {
  std::vector<std::vector<double>> losses;  // [step][rank]
  std::vector<TensorsByName> gradients;     // [step], before the optimizer's step
  std::vector<double> norms;                // [step], before clipping; where there is clipping
  TensorsByName parameters;                 // at the end
};

Reference train_unsharded(torch::jit::Module module, const Recipe& recipe, int64_t world);
/// All names, tied ones included.
TensorsByName named_parameters(const torch::jit::Module& module);
/// For parameters that have such elements: a mask of those whose first gradient is not zero, and nothing but rounding
/// by a run in float64. (Key biases of attention: AdamW turns their noise into steps of full size.)
TensorsByName elements_of_noise(const RankContext& context, const std::string& model, const Recipe& recipe);

struct Tolerance {
  double loss = 2e-5;       // absolute
  double gradient = 1e-5;   // of a parameter's norm
  double parameter = 1e-5;  // absolute, each element
  TensorsByName noise;  // masks of elements without a true gradient: theirs must be tiny, their values are not compared
};

/// This rank's part of each parameter and gradient, against the full ones. `full` holds gradients or values by name.
void expect_gradients_equal(const ShardedModule& sharded, const TensorsByName& full, const Tolerance& tolerance = {});
void expect_shards_equal(const ShardedModule& sharded, const TensorsByName& full, double tolerance);
void expect_parameters_equal(const torch::jit::Module& module, const TensorsByName& full, const Tolerance& tolerance);

/// Trains `model` sharded and compares every step's loss and gradients and the last parameters, before and after
/// detach.
void expect_trains_like_unsharded(RankContext& context, const std::string& model, const Sharding& sharding,
                                  const Recipe& recipe, const Tolerance& tolerance = {});
/// The same against a reference that is already there.
void expect_trains_like(RankContext& context, torch::jit::Module module, const Sharding& sharding, const Recipe& recipe,
                        const Reference& reference, const Tolerance& tolerance = {});

/// Sharded leaf tensors for an optimizer.
std::vector<at::Tensor> tensors_of(const ShardedModule& sharded);

/// Sum of squares over every floating tensor in a value, a mean for each; 0 if there is none.
at::Tensor mean_square(const c10::IValue& value);

}  // namespace fsdp2::testing
