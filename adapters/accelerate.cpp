// Accelerate's launch file, and the keywords and variables of its plugin. What Accelerate refuses is refused here, and
// a key that it never reads has no effect here either. The one exception is stated where it is made.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/accelerate_input.hpp"
#include "adapters/accelerate_names.hpp"
#include "adapters/adapters.hpp"
#include "adapters/hugging_face.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using namespace accelerate;

class AccelerateTranslator : public HuggingFaceTranslator {
 public:
  AccelerateTranslator(const Input& input, const std::string& file, const TranslationContext& context)
      : HuggingFaceTranslator(file), input_(input), context_(context) {
    put_counts(context.ranks, input_, result_.notes);
  }

  Translation run() {
    read_version();
    note_unread();
    read_policy();
    read_mesh();
    if (source_version_ == 1) {
      read_strategy_1();
      emit_prefetch_1(find("fsdp_backward_prefetch"), truth_or("fsdp_forward_prefetch", false),
                      find("fsdp_forward_prefetch"));
      truth_or("fsdp_use_orig_params", false);  // not used, but checked
    } else {
      read_strategy_2();
      // Not used, but checked.
      if (const Setting* backward = find("fsdp_backward_prefetch")) prefetch_of(*backward);
    }
    read_loading();
    emit_checkpoint(find("fsdp_state_dict_type"), source_version_ == 1 ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT");
    read_offload();
    read_checkpointing();
    if (!read_policy_of_dtypes()) read_mixed_precision();
    if (const Setting* entry = find("fsdp_ignored_modules")) {
      if (entry->text.empty()) throw setting_fault(*entry, "must be one regular expression");
      emit("ignored_modules", std::vector<std::string>{entry->text}, entry);
    }
    if (version_ == 2) gather_obsolete();
    return std::move(result_);
  }

 private:
  const Setting* find(std::string_view key) const { return find_entry(input_.fsdp, key); }

  bool is_text_keyword(const Setting& entry) const {
    return is_keyword(input_, entry) && entry.kind == Setting::Kind::kText;
  }

  bool truth(const Setting& entry) const {
    if (is_text_keyword(entry)) {
      throw setting_fault(entry, "must be true or false, not text: Python takes any text for true");
    }
    return truth_of(entry);
  }

  bool truth_or(std::string_view key, bool standard) const {
    const Setting* entry = find(key);
    return entry == nullptr ? standard : truth(*entry);
  }

  std::optional<int64_t> top_count(std::string_view key) const {
    const Setting* entry = find_entry(input_.top, key);
    if (entry == nullptr) return std::nullopt;
    const std::optional<int64_t> count = as_int(*entry);
    if (!count || (*count < 1 && *count != -1)) throw setting_fault(*entry, "must be a whole number, 1 or more");
    if (*count == -1) return std::nullopt;  // given on the command line
    return count;
  }

  void read_version() {
    const Setting* entry = find("fsdp_version");
    int64_t version = 1;
    if (entry != nullptr) {
      const std::optional<int64_t> given = as_int(*entry);
      if (given != 1 && given != 2) throw setting_fault(*entry, "is an unknown version; there are 1 and 2");
      version = *given;
    }
    set_versions(version, context_.version, entry, "fsdp_version");
  }

  void note_unread() {
    std::vector<std::string> variables;
    for (const std::string_view key : kFsdpKeys) variables.push_back(upper_case(key));
    const std::vector<std::string_view> in_capitals(variables.begin(), variables.end());
    for (const auto& [key, entry] : input_.fsdp) {
      if (key == kPolicyKeyword || std::find(kFsdpKeys.begin(), kFsdpKeys.end(), key) != kFsdpKeys.end()) continue;
      note(entry, input_.launched ? unread_by("Accelerate", key, kFsdpKeys)
                                  : unread_by("Accelerate", entry.source.key, in_capitals));
    }
  }

  void read_policy() {
    const Setting* entry = find("fsdp_auto_wrap_policy");
    std::string_view policy = kPolicies[2];
    if (entry != nullptr) {
      const std::string wanted = upper_case(entry->text);
      const auto* const found = std::find(kPolicies.begin(), kPolicies.end(), wanted);
      if (found == kPolicies.end()) {
        throw setting_fault(*entry, "must be one of " + quoted_list(kPolicies), nearest_name(wanted, kPolicies));
      }
      policy = *found;
    }
    emit_policy(policy, entry);
    if (const Setting* classes = find("fsdp_transformer_layer_cls_to_wrap")) {
      if (policy == kPolicies[0]) {
        read_classes(*classes);
      } else {
        note(*classes, "has no effect without TRANSFORMER_BASED_WRAP");
      }
    }
    const Setting* least = find("fsdp_min_num_params");
    if (policy == kPolicies[1]) {
      read_least(least);
    } else if (least != nullptr) {
      note(*least, "has no effect without SIZE_BASED_WRAP");
    }
  }

  void read_least(const Setting* entry) {
    int64_t count = input_.launched ? 100'000'000 : 0;
    if (entry != nullptr) {
      const std::optional<int64_t> given = as_int(*entry);
      if (!given || *given < 0 || is_text_keyword(*entry)) {
        throw setting_fault(*entry, "must be a whole number, 0 or more, in digits");
      }
      count = *given;
    }
    emit("wrap.min_num_params", count, entry);
    makes_units_ = count > 0;
  }

  void read_classes(const Setting& entry) {
    if (entry.kind != Setting::Kind::kList) return emit_classes(split_at_commas(entry.text), entry);
    if (input_.launched) {
      note(entry, "is taken as class names; Accelerate wants them in one text with commas and would find none");
    }
    emit_classes(entry.list, entry);
  }

  const Setting* size_entry(std::string_view name) const {
    return find_entry(input_.parallelism, "parallelism_config_" + std::string(name));
  }

  int64_t mesh_size(std::string_view name) const {
    const Setting* entry = size_entry(name);
    if (entry == nullptr) return 1;
    const std::optional<int64_t> size = as_int(*entry);
    if (!size || *size < 1) throw setting_fault(*entry, "must be a whole number, 1 or more");
    return *size;
  }

  void read_mesh() {
    if (input_.parallelism.empty()) return;
    if (source_version_ == 1) {
      const auto block = input_.top.find("parallelism_config");
      const Setting& at = block == input_.top.end() ? input_.parallelism.begin()->second : block->second;
      throw error_at(at.key_source, "parallelism_config", "`" + at.source.key + "` needs `fsdp_version: 2`");
    }
    for (const std::string_view other : {"tp_size", "cp_size", "sp_size", "ep_size"}) {
      if (mesh_size(other) == 1) continue;
      throw setting_fault(*size_entry(other), "is not possible: only data-parallel ranks are sharded, so it must be 1");
    }
    replicate_ = mesh_size("dp_replicate_size");
    const int64_t shard_size = mesh_size("dp_shard_size");
    if (shard_size == 1 && replicate_ > 1) {
      throw setting_fault(*size_entry("dp_replicate_size"),
                          "needs `parallelism_config_dp_shard_size` above 1: nothing would be sharded");
    }
    const std::optional<int64_t> ranks = top_count("num_processes");
    if (ranks && (*ranks % replicate_ != 0 || *ranks / replicate_ != shard_size)) {
      const std::string sizes = std::to_string(replicate_) + " x " + std::to_string(shard_size);
      throw setting_fault(
          *find_entry(input_.top, "num_processes"),
          "is not `parallelism_config_dp_replicate_size` x `parallelism_config_dp_shard_size`, " + sizes);
    }
    emit("mesh.replicate", replicate_, size_entry("dp_replicate_size"));
    emit("mesh.shard", shard_size, size_entry("dp_shard_size"));
  }

  void read_strategy_1() {
    const Setting* reshard = find("fsdp_reshard_after_forward");
    const Setting* entry = find("fsdp_sharding_strategy");
    if (reshard != nullptr && reshard->kind == Setting::Kind::kBool && is_keyword(input_, *reshard)) {
      throw setting_fault(
          *reshard, "is a boolean, which only version 2 has; under version 1 it is one of " + quoted_list(kStrategies));
    }
    const bool is_word = reshard != nullptr && as_truth(*reshard) && !as_int(*reshard);
    std::string_view name = kStrategies[0];
    if (entry != nullptr) {
      if (is_keyword(input_, *entry) && entry->kind == Setting::Kind::kInt) {
        throw setting_fault(*entry, "must be text, one of " + quoted_list(kStrategies));
      }
      name = choice_of(*entry, kStrategies);
      if (reshard != nullptr && is_text_keyword(*reshard)) choice_of(*reshard, kStrategies);  // not used, but checked
      if (reshard != nullptr) note(*reshard, "has no effect: fsdp_sharding_strategy comes first");
    } else if (is_word) {
      note(*reshard, "has no effect: true and false are of version 2, and Accelerate drops them under version 1");
    } else if (reshard != nullptr) {
      // Accelerate documents this spelling, but then runs FULL_SHARD whatever it says. What it says is taken.
      name = choice_of(*reshard, kStrategies);
      note(*reshard, "is taken by its name, as documented; Accelerate itself would run FULL_SHARD");
      entry = reshard;
    }
    emit_strategy_1(name, top_count("num_machines").value_or(input_.launched ? 1 : 0), entry,
                    find_entry(input_.top, "num_machines"));
  }

  void read_strategy_2() {
    const Setting* entry = find("fsdp_reshard_after_forward");
    bool reshards = true;
    if (entry != nullptr) {
      const bool number = is_keyword(input_, *entry) && as_int(*entry) && entry->kind != Setting::Kind::kText;
      const std::optional<bool> value = number ? std::nullopt : as_truth(*entry);
      if (!value) throw setting_fault(*entry, "must be true or false under version 2");
      reshards = *value;
    } else if (const Setting* other = find("fsdp_sharding_strategy"); other != nullptr && is_keyword(input_, *other)) {
      throw setting_fault(*other, "needs `reshard_after_forward` beside it under version 2");
    }
    if (const Setting* ahead = find("fsdp_forward_prefetch"); ahead != nullptr && is_keyword(input_, *ahead)) {
      throw setting_fault(*ahead, "does not exist under version 2: Accelerate refuses it, also as false");
    }
    emit_sharding(reshards, replicate_ > 1, entry);
  }

  void read_loading() {
    const Setting* efficient = find("fsdp_cpu_ram_efficient_loading");
    const Setting* sync = find("fsdp_sync_module_states");
    const bool standard = input_.launched;
    if (input_.launched && (efficient == nullptr || is_truthy(*efficient)) && sync != nullptr && !is_truthy(*sync)) {
      throw setting_fault(*sync, "needs `fsdp_cpu_ram_efficient_loading: false`, which is true by default");
    }
    bool broadcast = truth_or("fsdp_cpu_ram_efficient_loading", standard);
    const Setting* decides = efficient;
    if (source_version_ == 1) {
      const bool synchronises = truth_or("fsdp_sync_module_states", standard);
      if (broadcast && !synchronises) {
        const std::string forced = "is taken as true, because fsdp_cpu_ram_efficient_loading is";
        sync != nullptr ? note(*sync, forced) : note(*efficient, "makes sync_module_states true, as in Accelerate");
      }
      if (!broadcast && sync != nullptr) decides = sync;
      broadcast = broadcast || synchronises;
    }
    emit("load.mode", std::string(broadcast ? "broadcast" : "full"), decides);
  }

  void read_offload() {
    const Setting* entry = find("fsdp_offload_params");
    if (entry == nullptr) return;
    const bool of_1 = entry->text.starts_with("CPUOffload(") || entry->text == "CPUOffload";
    const bool of_2 = entry->text.find("OffloadPolicy") != std::string::npos;
    if (of_1 || of_2) {
      const std::string owner = of_1 ? "version 1's" : "version 2's";
      throw setting_fault(*entry, "is an object of " + owner + " Python interface; here it must be true or false");
    }
    if (is_keyword(input_, *entry) && entry->kind != Setting::Kind::kBool) {
      throw setting_fault(*entry, "must be true or false");
    }
    if (!truth(*entry)) return;
    emit("offload.params", true, entry);
    if (version_ == 2) emit("offload.pin_memory", true, entry);
  }

  void read_checkpointing() {
    const Setting* entry = find("fsdp_activation_checkpointing");
    const bool enabled = truth_or("fsdp_activation_checkpointing", false);
    const Setting* offload = find("fsdp_activation_checkpointing_offload");
    if (offload != nullptr && truth(*offload)) {
      if (!enabled) throw setting_fault(*offload, "needs `fsdp_activation_checkpointing: true`");
      if (source_version_ == 1) throw setting_fault(*offload, "needs `fsdp_version: 2`");
      note(*offload, "cannot be expressed: checkpointed inputs stay on the device");
    }
    if (enabled && source_version_ == 2 && !makes_units_) {
      throw setting_fault(*entry, "needs `fsdp_auto_wrap_policy`: Accelerate fails without one under version 2");
    }
    if (entry != nullptr) emit("activation_checkpointing", enabled, entry);
  }

  /// The plugin's own keyword for it, a name or a table, comes before the general one.
  bool read_policy_of_dtypes() {
    const Setting* entry = find(kPolicyKeyword);
    if (entry == nullptr) return false;
    if (entry->kind == Setting::Kind::kMap) {
      read_table_of_dtypes(*entry);
      return true;
    }
    constexpr std::array<std::string_view, 4> kNames{"fp8", "fp16", "bf16", "fp32"};
    if (std::find(kNames.begin(), kNames.end(), entry->text) == kNames.end()) {
      throw setting_fault(*entry, "must be one of " + quoted_list(kNames) + ", or a table of dtypes",
                          nearest_name(entry->text, kNames));
    }
    if (entry->text == "fp8") note(*entry, "is taken as bf16");
    emit_precision(dtype_of(entry->text == "fp8" ? "bf16" : entry->text), *entry);
    return true;
  }

  void read_table_of_dtypes(const Setting& map) {
    const bool second = source_version_ == 2;
    const std::array<std::string_view, 3> keys{"param_dtype", "reduce_dtype", second ? "output_dtype" : "buffer_dtype"};
    for (const Setting& member : map.members) {
      if (std::find(keys.begin(), keys.end(), member.key) == keys.end()) {
        throw setting_fault(
            member,
            "is no key of it: under version " + std::to_string(source_version_) + " it has " + quoted_list(keys),
            nearest_name(member.key, keys));
      }
      if (dtype_of(member.text).empty()) throw setting_fault(member, R"(must be "bf16", "fp16" or "fp32")");
    }
    for (const std::string_view key : keys) {
      if (find_member(map, key) == nullptr) throw setting_fault(map, "needs all of " + quoted_list(keys));
    }
    const auto emit_dtype = [&](const std::string& key, std::string_view from) {
      const Setting* member = find_member(map, from);
      emit("mixed_precision." + key, dtype_of(member->text), member);
    };
    emit_dtype("param", keys[0]);
    emit_dtype("reduce", keys[1]);
    if (second) emit_dtype("output", keys[2]);
    if (!second) note(*find_member(map, keys[2]), "has no counterpart: buffers stay as they are");
    emit("mixed_precision.cast_forward_inputs", true, &map);
  }

  void read_mixed_precision() {
    const Precision precision = read_precision(input_);
    if (precision.name == "no") return;
    if (precision.name == "fp8") note(*precision.entry, "is taken as bf16");
    emit_precision(dtype_of(precision.name == "fp8" ? "bf16" : precision.name), *precision.entry);
  }

  void gather_obsolete() {
    std::vector<const Setting*> entries;
    for (const std::string_view key : kObsolete) entries.push_back(find(key));
    warn_obsolete(std::move(entries));
  }

  Input input_;
  const TranslationContext& context_;
  int64_t replicate_ = 1;
};

}  // namespace

Translation translate_accelerate(std::string_view text, const std::string& file, const TranslationContext& context) {
  const Input input = read_launch_file(text, file);
  if (find_entry(input.top, "distributed_type")->text == "DEEPSPEED") {
    return translate_deepspeed_block(input, file, context);
  }
  return AccelerateTranslator(input, file, context).run();
}

Translation translate_accelerate_keys(std::span<const HostKey> keys, const std::string& name,
                                      const TranslationContext& context) {
  const Input input = read_plugin_keys(keys, name);
  return AccelerateTranslator(input, name, context).run();
}

}  // namespace fsdp2
