// The names of PyTorch's FullyShardedDataParallel (FSDP version 1), which several hosts hand through, and what they are
// called here.
#pragma once
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

namespace fsdp2::fsdp1 {

/// Of the enumeration ShardingStrategy.
inline constexpr std::array<std::string_view, 5> kStrategies{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                             "_HYBRID_SHARD_ZERO2"};
/// Of the enumeration BackwardPrefetch; None is the third value.
inline constexpr std::array<std::string_view, 2> kBackwardPrefetches{"BACKWARD_PRE", "BACKWARD_POST"};

inline constexpr std::string_view kPostNote =
    "is taken as prefetch.backward = 1: gathers are started before a unit's backward only";

/// Keywords of the constructor, and of its MixedPrecision.
inline constexpr std::array<std::string_view, 15> kKeywords{
    "process_group",    "sharding_strategy", "cpu_offload",     "auto_wrap_policy", "backward_prefetch",
    "mixed_precision",  "ignored_modules",   "param_init_fn",   "device_id",        "sync_module_states",
    "forward_prefetch", "limit_all_gathers", "use_orig_params", "ignored_states",   "device_mesh"};
inline constexpr std::array<std::string_view, 6> kPrecisionKeywords{"param_dtype",         "reduce_dtype",
                                                                    "buffer_dtype",        "keep_low_precision_grads",
                                                                    "cast_forward_inputs", "cast_root_forward_inputs"};
/// Those that version 2 has not.
inline constexpr std::array<std::string_view, 7> kObsolete{
    "backward_prefetch",  "forward_prefetch", "limit_all_gathers", "use_orig_params",
    "sync_module_states", "param_init_fn",    "device_id"};
inline constexpr std::array<std::string_view, 2> kObsoletePrecision{"buffer_dtype", "keep_low_precision_grads"};

/// The five canonical names: lower case, and no underscore in front.
inline std::string canonical_strategy(std::string_view name) {
  if (name.starts_with('_')) name.remove_prefix(1);
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

inline bool reshards(std::string_view strategy) {
  return strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD";
}

inline bool is_hybrid(std::string_view strategy) {
  return strategy.find("HYBRID") != std::string_view::npos;
}

/// "bfloat16" for "torch.bfloat16" and "bf16"; nothing for what is no dtype of floating numbers that can be sharded.
inline std::optional<std::string> canonical_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float32" || name == "fp32" || name == "float") return "float32";
  if (name == "float16" || name == "fp16" || name == "half") return "float16";
  if (name == "bfloat16" || name == "bf16" || name == "bfloat") return "bfloat16";
  return std::nullopt;
}

/// A module's name as a regular expression that matches it alone.
inline std::string exactly(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace fsdp2::fsdp1
