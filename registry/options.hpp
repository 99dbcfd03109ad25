// Every choice a host can make, typed. The keys of the table `[fsdp]` in the order in which they are printed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "registry/dtype.hpp"

namespace fsdp2 {

enum class Layout : uint8_t { kRagged, kPerParameter, kFlat };
enum class WrapPolicy : uint8_t { kTransformer, kSize, kModules, kEvery, kNone };
enum class CheckpointKind : uint8_t { kSharded, kFull };
enum class LoadMode : uint8_t { kSharded, kBroadcast, kFull };

/// The spellings of the configuration, for example "per_parameter".
std::string_view name_of(Layout layout);
std::string_view name_of(WrapPolicy policy);
std::string_view name_of(CheckpointKind kind);
std::string_view name_of(LoadMode mode);

/// "auto": every unit reshards after its forward except the root.
struct ReshardAuto {
  bool operator==(const ReshardAuto&) const = default;
};
/// "auto", yes or no, or the number of ranks to reshard to.
using ReshardAfterForward = std::variant<ReshardAuto, bool, int64_t>;

struct WrapOptions {
  WrapPolicy policy = WrapPolicy::kNone;
  std::vector<std::string> layer_classes;  // transformer
  std::optional<int64_t> min_num_params;   // size
  std::vector<std::string> modules;        // modules
  bool operator==(const WrapOptions&) const = default;
};

/// Unset: 1 x all ranks; for the hybrid strategies, nodes x ranks of a node. -1 is the rest of the ranks.
struct MeshOptions {
  std::optional<int64_t> replicate;
  std::optional<int64_t> shard;
  bool operator==(const MeshOptions&) const = default;
};

struct MixedPrecisionOptions {
  std::optional<DType> param;
  std::optional<DType> reduce;
  std::optional<DType> output;
  bool cast_forward_inputs = true;
  bool operator==(const MixedPrecisionOptions&) const = default;
};

struct OffloadOptions {
  bool params = false;
  bool pin_memory = true;  // without effect unless params
  bool operator==(const OffloadOptions&) const = default;
};

/// How many units are gathered ahead of the one that runs. 0 is off.
struct PrefetchOptions {
  int64_t forward = 1;
  int64_t backward = 1;
  bool operator==(const PrefetchOptions&) const = default;
};

/// `true` (every unit), `{ every = n }` or `{ classes = [..] }`.
struct ActivationCheckpointingOptions {
  bool enabled = false;
  std::optional<int64_t> every;
  std::vector<std::string> classes;
  bool operator==(const ActivationCheckpointingOptions&) const = default;
};

struct GradientOptions {
  std::optional<double> clip_norm;
  std::optional<double> divide_factor;
  bool operator==(const GradientOptions&) const = default;
};

struct DebugOptions {
  int64_t order_check = 3;  // steps whose order of collectives is compared over ranks, -1 is all
  bool force_collectives = false;
  double timeout_s = 300;
  int64_t check_steps = 2;  // optimizer steps whose gradients are checked against changes by the host
  bool operator==(const DebugOptions&) const = default;
};

/// A strategy's own option, of the table [fsdp.strategy_options].
using StrategyOption = std::variant<bool, int64_t, double, std::string>;

struct Fsdp2Options {
  int64_t version = 2;
  std::string strategy = "full_shard";  // with or without its prefix, "fsdp2.full_shard"
  ReshardAfterForward reshard_after_forward = ReshardAuto{};
  std::optional<Layout> layout;  // unset: that of the version, see layout_of()
  WrapOptions wrap;
  std::vector<std::string> ignored_modules;
  MeshOptions mesh;
  MixedPrecisionOptions mixed_precision;
  OffloadOptions offload;
  PrefetchOptions prefetch;
  ActivationCheckpointingOptions activation_checkpointing;
  GradientOptions gradient;
  CheckpointKind checkpoint_kind = CheckpointKind::kSharded;
  LoadMode load_mode = LoadMode::kSharded;
  std::string dialect;  // another host's configuration to start from, and its path
  std::string config;
  std::vector<std::string> plugins;                                     // shared libraries with strategies and adapters
  std::map<std::string, StrategyOption, std::less<>> strategy_options;  // of a strategy from one of those
  DebugOptions debug;
  bool operator==(const Fsdp2Options&) const = default;
};

/// The layout in force: "ragged" for version 2, "flat" for version 1, unless one is named.
Layout layout_of(const Fsdp2Options& options);

/// A strategy's name without the prefix of a version: "full_shard" for "fsdp2.full_shard". Other prefixes stay.
std::string_view strategy_base(std::string_view strategy);

/// Whether a strategy has a prefix that is no version's: it comes from a library in `plugins`.
bool is_from_outside(std::string_view strategy);

/// A strategy's full name: one without a prefix is that of the version.
std::string strategy_full_name(const Fsdp2Options& options);

}  // namespace fsdp2
