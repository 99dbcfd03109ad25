// What accelerate and transformers share: transformers makes accelerate's plugin from its own keys.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/translator.hpp"

namespace fsdp2 {

class HuggingFaceTranslator : public Translator {
 protected:
  static constexpr std::array<std::string_view, 5> kStrategies{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                               "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
  static constexpr std::array<std::string_view, 3> kPolicies{"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};

  using Translator::Translator;

  /// The version that the host's configuration has, and the one that the caller wants, if any.
  void set_versions(int64_t source, std::optional<int64_t> wanted, const Setting* entry, const std::string& key);

  /// A wrap policy of the host, without the classes or the number that go with it.
  void emit_policy(std::string_view policy, const Setting* entry);

  /// Names without the blanks around them, with which the host would not find a class.
  void emit_classes(std::vector<std::string> classes, const Setting& entry);

  /// A strategy of version 1 by its name. `nodes`: how many there are, 0 where that is not known.
  void emit_strategy_1(std::string_view name, int64_t nodes, const Setting* entry, const Setting* nodes_entry);

  /// BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH; or an error.
  static std::string_view prefetch_of(const Setting& entry);
  void emit_prefetch_1(const Setting* backward, bool forward, const Setting* forward_entry);

  void emit_checkpoint(const Setting* entry, std::string_view standard);

  /// The same dtype for all that the version has.
  void emit_precision(const std::string& dtype, const Setting& entry);

  int64_t source_version_ = 2;  // of the host's configuration
  int64_t version_ = 2;         // of the result
  bool makes_units_ = true;     // by the policy
};

}  // namespace fsdp2
