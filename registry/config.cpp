#include "registry/config.hpp"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "registry/consistency.hpp"
#include "registry/keys.hpp"

namespace fsdp2 {
namespace {

struct PolicyKey {
  std::string_view policy;
  std::string_view key;
};
constexpr std::array<PolicyKey, 3> kPolicyKeys{
    {{"transformer", "wrap.layer_classes"}, {"size", "wrap.min_num_params"}, {"modules", "wrap.modules"}}};

void give_way(GivenKeys& base, std::string_view key, const std::string& to, std::vector<std::string>& notes) {
  const auto found = base.find(key);
  if (found == base.end()) return;
  const std::string& written = found->second.source.key.empty() ? found->first : found->second.source.key;
  notes.push_back(place(found->second.source) + written + " gives way to `" + to + "` of [fsdp]");
  base.erase(found);
}

/// The strategy that goes with a reshard rule (and a mesh) where none is named.
std::string strategy_for(const ReshardAfterForward& reshard, const MeshOptions& mesh) {
  const bool* flag = std::get_if<bool>(&reshard);
  const bool keeps = flag != nullptr && !*flag;
  const bool hybrid = mesh.replicate && *mesh.replicate > 1;
  if (hybrid) return keeps ? "hybrid_shard_zero2" : "hybrid_shard";
  return keeps ? "shard_grad_op" : "full_shard";
}

/// An adapter always gives both of `strategy` and `reshard_after_forward`; one key beside it must not have to repeat
/// both.
void follow_given_strategy(GivenKeys& base, const GivenKeys& given, std::vector<std::string>& notes) {
  const auto strategy = given.find("strategy");
  const auto reshard = given.find("reshard_after_forward");
  if (strategy == given.end() && reshard == given.end()) return;
  if (strategy != given.end() && reshard != given.end()) {
    base.erase("strategy");
    base.erase("reshard_after_forward");
    return;
  }
  const auto& [named, other] = strategy != given.end() ? std::pair(strategy, base.find("reshard_after_forward"))
                                                       : std::pair(reshard, base.find("strategy"));
  if (other == base.end()) return;
  Fsdp2Options both;
  if (find_key(named->first)->take(both, named->second.value)) return;  // reported when it is taken for good
  if (find_key(other->first)->take(both, other->second.value)) return;
  if (!goes_together(both.strategy, both.reshard_after_forward)) give_way(base, other->first, named->first, notes);
}

void follow_given_policy(GivenKeys& base, const GivenKeys& given, std::vector<std::string>& notes) {
  const auto policy = given.find("wrap.policy");
  if (policy == given.end()) return;
  const std::string* name = std::get_if<std::string>(&policy->second.value);
  for (const PolicyKey& row : kPolicyKeys) {
    if (name == nullptr || *name != row.policy) give_way(base, row.key, "wrap.policy", notes);
  }
}

void follow_given_checkpointing(GivenKeys& base, const GivenKeys& given) {
  constexpr std::string_view kName = "activation_checkpointing";
  const auto first = given.lower_bound(kName);
  if (first == given.end() || !first->first.starts_with(kName)) return;
  std::erase_if(base, [&](const auto& item) { return item.first.starts_with(kName); });
}

void take(const std::string& key, const Given& given, const KeySpec& spec, Config& config) {
  const Source& source = given.source;
  config.sources[key] = source;
  const std::string_view own = strategy_option_name(key);
  const auto fault = own.empty() ? spec.take(config.options, given.value)
                                 : take_strategy_option(config.options.strategy_options[std::string(own)], given.value);
  if (!fault) return;
  const std::string& written = source.key.empty() ? key : source.key;
  throw error_at(source, written, "`" + written + "` must be " + std::string(spec.allowed) + ", " + fault->sentence,
                 fault->nearest);
}

void take_all(const GivenKeys& keys, Config& config) {
  for (const KeySpec& spec : key_specs()) {
    if (const auto found = keys.find(spec.name); found != keys.end()) take(found->first, found->second, spec, config);
  }
  for (const auto& [key, given] : keys) {
    if (!strategy_option_name(key).empty()) take(key, given, *find_key(key), config);
  }
}

void follow_strategy(Config& config) {
  Fsdp2Options& options = config.options;
  const bool strategy = config.sources.contains("strategy");
  const bool reshard = config.sources.contains("reshard_after_forward");
  if (!strategy) {
    options.strategy = strategy_for(options.reshard_after_forward, options.mesh);
  } else if (!reshard && !goes_together(options.strategy, true)) {
    options.reshard_after_forward = false;
  }
}

}  // namespace

Config resolve(const GivenKeys& given, const GivenKeys& base) {
  Config config;
  GivenKeys keys = base;
  follow_given_strategy(keys, given, config.notes);
  follow_given_policy(keys, given, config.notes);
  follow_given_checkpointing(keys, given);
  for (const auto& [key, entry] : given) keys.insert_or_assign(key, entry);
  take_all(keys, config);
  follow_strategy(config);
  check_consistent(config);
  const auto policy = config.sources.find("wrap.policy");
  // Another host may leave the classes to planning; here they must stand beside the policy.
  if (policy != config.sources.end() && !policy->second.translated) check_wrap_complete(config);
  return config;
}

Source source_of(const Config& config, std::string_view key) {
  const auto found = config.sources.find(key);
  return found == config.sources.end() ? Source{} : found->second;
}

}  // namespace fsdp2
