#include "adapters/hugging_face.hpp"

#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

constexpr std::array<std::string_view, 3> kStateDicts{"FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"};
constexpr std::array<std::string_view, 3> kPrefetches{"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};

}  // namespace

void HuggingFaceTranslator::set_versions(int64_t source, std::optional<int64_t> wanted, const Setting* entry,
                                         const std::string& key) {
  source_version_ = source;
  version_ = wanted.value_or(source);
  if (version_ < source) {
    if (entry != nullptr) throw setting_fault(*entry, "cannot be converted to version 1");
    Source place;
    place.file = file_;
    throw error_at(place, key, "`" + key + "` is 2 by default, and cannot be converted to version 1");
  }
  emit("version", version_, entry);
  if (version_ == source) return;
  result_.notes.push_back(file_ + ": converted from " + key +
                          " 1 to 2; what version 1 means by its other keys is kept");
}

void HuggingFaceTranslator::emit_policy(std::string_view policy, const Setting* entry) {
  makes_units_ = policy != kPolicies[2];
  emit("wrap.policy", std::string(policy == kPolicies[0] ? "transformer" : makes_units_ ? "size" : "none"), entry);
}

void HuggingFaceTranslator::emit_classes(std::vector<std::string> classes, const Setting& entry) {
  bool trimmed = false;
  for (std::string& name : classes) {
    const std::string bare(without_blanks(name));
    trimmed = trimmed || bare != name;
    name = bare;
  }
  if (trimmed) note(entry, "is taken without the blanks, with which Accelerate would not find the classes");
  std::erase(classes, "");
  if (!classes.empty()) emit("wrap.layer_classes", classes, &entry);
}

void HuggingFaceTranslator::emit_strategy_1(std::string_view name, int64_t nodes, const Setting* entry,
                                            const Setting* nodes_entry) {
  emit("strategy", lower_case(name), entry);
  emit("reshard_after_forward", name == "FULL_SHARD" || name == "HYBRID_SHARD", entry);
  if (!name.starts_with("HYBRID")) return;
  if (!makes_units_) {
    throw setting_fault(*entry, "needs an auto wrap policy: a hybrid strategy without units fails in PyTorch");
  }
  if (nodes == 0) return;  // inside a node, over nodes: as many as there are
  emit("mesh.replicate", nodes, nodes_entry);
  emit("mesh.shard", int64_t{-1}, entry);
}

std::string_view HuggingFaceTranslator::prefetch_of(const Setting& entry) {
  const std::string_view name = choice_of(entry, kPrefetches);
  if (name == "NO_PREFETCH" && as_int(entry)) {  // it has a name, but no number
    throw setting_fault(entry, "must be one of " + quoted_list(kPrefetches));
  }
  return name;
}

void HuggingFaceTranslator::emit_prefetch_1(const Setting* backward, bool forward, const Setting* forward_entry) {
  const std::string_view name = backward == nullptr ? "NO_PREFETCH" : prefetch_of(*backward);
  if (version_ != 1) return;  // version 2 has no such keys: they are in the warning
  if (name == "BACKWARD_POST") {
    note(*backward, "is taken as prefetch.backward = 1: gathers are started before a unit's backward only");
  }
  emit("prefetch.backward", int64_t{name == "NO_PREFETCH" ? 0 : 1}, backward);
  emit("prefetch.forward", int64_t{forward ? 1 : 0}, forward_entry);
}

void HuggingFaceTranslator::emit_checkpoint(const Setting* entry, std::string_view standard) {
  const std::string_view kind = entry == nullptr ? standard : choice_of(*entry, kStateDicts);
  if (kind == "LOCAL_STATE_DICT") {
    if (source_version_ == 2) {
      throw setting_fault(*entry, "does not exist under version 2: use SHARDED_STATE_DICT or FULL_STATE_DICT");
    }
    note(*entry, "is taken as checkpoint.kind = \"sharded\"");
  }
  emit("checkpoint.kind", std::string(kind == "FULL_STATE_DICT" ? "full" : "sharded"), entry);
}

void HuggingFaceTranslator::emit_precision(const std::string& dtype, const Setting& entry) {
  emit("mixed_precision.param", dtype, &entry);
  emit("mixed_precision.reduce", dtype, &entry);
  if (source_version_ == 2) emit("mixed_precision.output", dtype, &entry);
  emit("mixed_precision.cast_forward_inputs", true, &entry);
}

}  // namespace fsdp2
