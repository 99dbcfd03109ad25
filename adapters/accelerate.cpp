// Accelerate's launch file. A file that Accelerate refuses is refused here, and a key that it never reads has no effect
// here either. The one exception is stated where it is made.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/accelerate_names.hpp"
#include "adapters/adapters.hpp"
#include "adapters/yaml_block.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using namespace accelerate;

Error fault(const YamlEntry& entry, const std::string& sentence, const std::string& nearest = {}) {
  return error_at(entry.source, entry.source.key, "`" + as_written(entry) + "` " + sentence, nearest);
}

/// One of `names` in any case, or its number counted from 1.
template <size_t N>
std::string_view choice(const YamlEntry& entry, const std::array<std::string_view, N>& names) {
  const std::string wanted = upper_case(entry.text);
  const std::optional<int64_t> number = as_int(entry);
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == wanted || number == static_cast<int64_t>(i) + 1) return names[i];
  }
  throw fault(entry, "must be one of " + quoted_list(names), nearest_name(wanted, names));
}

class Translator {
 public:
  Translator(std::string_view text, const std::string& file, const TranslationContext& context)
      : file_(file), context_(context) {
    YAML::Node root;
    try {
      root = YAML::Load(std::string(text));
    } catch (const YAML::Exception& error) {
      Source source{file, error.mark.line + 1, error.mark.column + 1, {}, {}, true};
      throw error_at(source, {}, "this is not YAML: " + error.msg);
    }
    top_ = read_block(root, file, "");
    check_top();
    const YAML::Node fsdp = root["fsdp_config"];
    const YAML::Node parallelism = root["parallelism_config"];
    fsdp_ = read_block(fsdp, file, "fsdp_config", "fsdp", "fsdp_");
    parallelism_ = read_block(parallelism, file, "parallelism_config");
  }

  Translation run() {
    read_version();
    note_unread();
    read_policy();
    read_mesh();
    if (source_version_ == 1) {
      read_strategy_1();
      read_prefetch_1();
    } else {
      read_strategy_2();
    }
    read_loading();
    read_state_dict();
    read_offload();
    read_checkpointing();
    read_precision();
    if (const YamlEntry* entry = find("fsdp_ignored_modules")) {
      if (entry->text.empty()) throw fault(*entry, "must be one regular expression");
      emit("ignored_modules", std::vector<std::string>{entry->text}, entry);
    }
    if (version_ == 2) gather_obsolete();
    return std::move(result_);
  }

 private:
  const YamlEntry* find(std::string_view key) const { return find_entry(fsdp_, key); }

  /// Without an entry the value is the host's default.
  void emit(const std::string& key, Value value, const YamlEntry* entry = nullptr) {
    Source source;
    source.file = file_;
    source.translated = true;
    if (entry != nullptr) source = entry->source;
    result_.given.insert_or_assign(key, Given{std::move(value), std::move(source)});
  }

  void note(const YamlEntry& entry, const std::string& sentence) {
    result_.notes.push_back(place(entry.source) + "`" + as_written(entry) + "` " + sentence);
  }

  bool truth(const YamlEntry& entry) const {
    const std::optional<bool> value = as_truth(entry);
    if (!value) throw fault(entry, "must be true or false (y, yes, t, true, on, 1 or n, no, f, false, off, 0)");
    return *value;
  }

  bool truth_or(std::string_view key, bool standard) const {
    const YamlEntry* entry = find(key);
    return entry == nullptr ? standard : truth(*entry);
  }

  std::optional<int64_t> top_count(std::string_view key) const {
    const YamlEntry* entry = find_entry(top_, key);
    if (entry == nullptr) return std::nullopt;
    const std::optional<int64_t> count = as_int(*entry);
    if (!count || (*count < 1 && *count != -1)) throw fault(*entry, "must be a whole number, 1 or more");
    if (*count == -1) return std::nullopt;  // given on the command line
    return count;
  }

  void check_top() const {
    for (const auto& [key, entry] : top_) {
      if (std::find(kTopKeys.begin(), kTopKeys.end(), key) == kTopKeys.end()) {
        throw error_at(entry.key_source, key, "Accelerate knows no key `" + key + "` at the top level",
                       nearest_name(key, kTopKeys));
      }
    }
    const YamlEntry* type = find_entry(top_, "distributed_type");
    if (type == nullptr) {
      Source source;
      source.file = file_;
      throw error_at(source, "distributed_type", "`distributed_type: FSDP` is missing");
    }
    if (type->text != "FSDP") throw fault(*type, "is not translated; accepted now: FSDP");
    const YamlEntry* place_of_work = find_entry(top_, "compute_environment");
    if (place_of_work != nullptr && place_of_work->text != "LOCAL_MACHINE") {
      throw fault(*place_of_work, "is not translated; accepted now: LOCAL_MACHINE");
    }
  }

  void read_version() {
    const YamlEntry* entry = find("fsdp_version");
    if (entry != nullptr) {
      const std::optional<int64_t> version = as_int(*entry);
      if (version != 1 && version != 2) throw fault(*entry, "is an unknown version; there are 1 and 2");
      source_version_ = *version;
    }
    version_ = context_.version.value_or(source_version_);
    if (version_ < source_version_) throw fault(*entry, "cannot be converted to version 1");
    converts_ = version_ != source_version_;
    emit("version", version_, entry);
    if (!converts_) return;
    result_.notes.push_back(file_ +
                            ": converted from fsdp_version 1 to 2; what version 1 means by its other keys is kept");
  }

  void note_unread() {
    for (const auto& [key, entry] : fsdp_) {
      if (std::find(kFsdpKeys.begin(), kFsdpKeys.end(), key) != kFsdpKeys.end()) continue;
      const std::string nearest = nearest_name(key, kFsdpKeys);
      note(entry, "has no effect: Accelerate does not read this key" +
                      (nearest.empty() ? "" : "; did you mean `" + nearest + "`?"));
    }
  }

  void read_policy() {
    const YamlEntry* entry = find("fsdp_auto_wrap_policy");
    policy_ = kPolicies[2];
    if (entry != nullptr) {
      const std::string wanted = upper_case(entry->text);
      const auto found = std::find(kPolicies.begin(), kPolicies.end(), wanted);
      if (found == kPolicies.end()) {
        throw fault(*entry, "must be one of " + quoted_list(kPolicies), nearest_name(wanted, kPolicies));
      }
      policy_ = *found;
    }
    const bool by_class = policy_ == kPolicies[0];
    const bool by_size = policy_ == kPolicies[1];
    emit("wrap.policy", std::string(by_class ? "transformer" : by_size ? "size" : "none"), entry);
    if (const YamlEntry* classes = find("fsdp_transformer_layer_cls_to_wrap")) {
      if (by_class) {
        read_classes(*classes);
      } else {
        note(*classes, "has no effect without TRANSFORMER_BASED_WRAP");
      }
    }
    const YamlEntry* least = find("fsdp_min_num_params");
    if (by_size) {
      int64_t count = 100'000'000;
      if (least != nullptr) {
        const std::optional<int64_t> given = as_int(*least);
        if (!given || *given < 0) throw fault(*least, "must be a whole number, 0 or more, in digits");
        count = *given;
      }
      emit("wrap.min_num_params", count, least);
    } else if (least != nullptr) {
      note(*least, "has no effect without SIZE_BASED_WRAP");
    }
  }

  void read_classes(const YamlEntry& entry) {
    std::vector<std::string> classes = entry.list;
    if (entry.kind == YamlEntry::Kind::kList) {
      note(entry, "is taken as class names; Accelerate wants them in one text with commas and would find none");
    } else {
      for (size_t begin = 0; begin <= entry.text.size();) {
        const size_t end = std::min(entry.text.find(',', begin), entry.text.size());
        classes.push_back(entry.text.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    bool trimmed = false;
    for (std::string& name : classes) {
      const size_t first = name.find_first_not_of(" \t");
      const size_t last = name.find_last_not_of(" \t");
      const std::string bare = first == std::string::npos ? "" : name.substr(first, last - first + 1);
      trimmed = trimmed || bare != name;
      name = bare;
    }
    if (trimmed) note(entry, "is taken without the blanks, with which Accelerate would not find the classes");
    std::erase(classes, "");
    if (!classes.empty()) emit("wrap.layer_classes", classes, &entry);
  }

  int64_t mesh_size(std::string_view name) const {
    const YamlEntry* entry = find_entry(parallelism_, "parallelism_config_" + std::string(name));
    if (entry == nullptr) return 1;
    const std::optional<int64_t> size = as_int(*entry);
    if (!size || *size < 1) throw fault(*entry, "must be a whole number, 1 or more");
    return *size;
  }

  void read_mesh() {
    if (parallelism_.empty()) return;
    const YamlEntry& block = top_.find("parallelism_config")->second;
    if (source_version_ == 1) {
      throw error_at(block.key_source, "parallelism_config", "`parallelism_config` needs `fsdp_version: 2`");
    }
    for (const std::string_view other : {"tp_size", "cp_size", "sp_size", "ep_size"}) {
      if (mesh_size(other) == 1) continue;
      throw fault(*find_entry(parallelism_, "parallelism_config_" + std::string(other)),
                  "is not possible: only data-parallel ranks are sharded, so it must be 1");
    }
    const YamlEntry* replicate = find_entry(parallelism_, "parallelism_config_dp_replicate_size");
    const YamlEntry* shard = find_entry(parallelism_, "parallelism_config_dp_shard_size");
    replicate_ = mesh_size("dp_replicate_size");
    const int64_t shard_size = mesh_size("dp_shard_size");
    if (shard_size == 1 && replicate_ > 1) {
      throw fault(*replicate, "needs `parallelism_config_dp_shard_size` above 1: nothing would be sharded");
    }
    const std::optional<int64_t> ranks = top_count("num_processes");
    if (ranks && replicate_ * shard_size != *ranks) {
      const std::string sizes = std::to_string(replicate_) + " x " + std::to_string(shard_size);
      throw fault(*find_entry(top_, "num_processes"),
                  "is not `parallelism_config_dp_replicate_size` x `parallelism_config_dp_shard_size`, " + sizes);
    }
    emit("mesh.replicate", replicate_, replicate);
    emit("mesh.shard", shard_size, shard);
  }

  void emit_strategy(const std::string& name, bool reshards, const YamlEntry* entry) {
    emit("strategy", name, entry);
    emit("reshard_after_forward", reshards, entry);
  }

  void read_strategy_1() {
    const YamlEntry* reshard = find("fsdp_reshard_after_forward");
    if (reshard != nullptr && reshard->kind == YamlEntry::Kind::kBool) {
      throw fault(*reshard,
                  "is a boolean, which only version 2 has; under version 1 it is one of " + quoted_list(kStrategies));
    }
    const YamlEntry* entry = find("fsdp_sharding_strategy");
    std::string_view name = kStrategies[0];
    if (entry != nullptr) {
      name = choice(*entry, kStrategies);
      if (reshard != nullptr) note(*reshard, "has no effect: fsdp_sharding_strategy comes first");
    } else if (reshard != nullptr) {
      // Accelerate documents this spelling, but then runs FULL_SHARD whatever it says. What it says is taken.
      name = choice(*reshard, kStrategies);
      note(*reshard, "is taken by its name, as documented; Accelerate itself would run FULL_SHARD");
      entry = reshard;
    }
    emit_strategy(lower_case(name), name == "FULL_SHARD" || name == "HYBRID_SHARD", entry);
    if (!name.starts_with("HYBRID")) return;
    if (policy_ == "NO_WRAP") {
      throw fault(*entry, "needs `fsdp_auto_wrap_policy`: a hybrid strategy without units fails in PyTorch");
    }
    emit("mesh.replicate", top_count("num_machines").value_or(1), find_entry(top_, "num_machines"));
    emit("mesh.shard", int64_t{-1}, entry);
  }

  void read_strategy_2() {
    const YamlEntry* entry = find("fsdp_reshard_after_forward");
    bool reshards = true;
    if (entry != nullptr) {
      const std::optional<bool> value = as_truth(*entry);
      if (!value) throw fault(*entry, "must be true or false under version 2");
      reshards = *value;
    }
    const bool hybrid = replicate_ > 1;
    emit_strategy(
        reshards ? (hybrid ? "hybrid_shard" : "full_shard") : (hybrid ? "hybrid_shard_zero2" : "shard_grad_op"),
        reshards, entry);
  }

  void read_prefetch_1() {
    if (version_ != 1) return;  // version 2 has no such keys: they are in the warning
    int64_t depth = 0;
    const YamlEntry* backward = find("fsdp_backward_prefetch");
    if (backward != nullptr && choice(*backward, kPrefetches) != "NO_PREFETCH") {
      depth = 1;
      if (choice(*backward, kPrefetches) == "BACKWARD_POST") {
        note(*backward, "is taken as prefetch.backward = 1: gathers are started before a unit's backward only");
      }
    } else if (backward != nullptr && as_int(*backward)) {
      throw fault(*backward, "must be one of " + quoted_list(kPrefetches));  // it has a name, but no number
    }
    emit("prefetch.backward", depth, backward);
    emit("prefetch.forward", int64_t{truth_or("fsdp_forward_prefetch", false) ? 1 : 0}, find("fsdp_forward_prefetch"));
  }

  void read_loading() {
    const YamlEntry* efficient = find("fsdp_cpu_ram_efficient_loading");
    const YamlEntry* sync = find("fsdp_sync_module_states");
    if ((efficient == nullptr || is_truthy(*efficient)) && sync != nullptr && !is_truthy(*sync)) {
      throw fault(*sync, "needs `fsdp_cpu_ram_efficient_loading: false`, which is true by default");
    }
    bool broadcast = truth_or("fsdp_cpu_ram_efficient_loading", true);
    const YamlEntry* decides = efficient;
    if (source_version_ == 1) {
      const bool synchronises = truth_or("fsdp_sync_module_states", true);
      if (sync != nullptr && broadcast && !synchronises)
        note(*sync, "is taken as true, because fsdp_cpu_ram_efficient_loading is");
      if (!broadcast && sync != nullptr) decides = sync;
      broadcast = broadcast || synchronises;
    }
    emit("load.mode", std::string(broadcast ? "broadcast" : "full"), decides);
  }

  void read_state_dict() {
    const YamlEntry* entry = find("fsdp_state_dict_type");
    std::string_view kind = source_version_ == 1 ? kStateDicts[0] : kStateDicts[2];
    if (entry != nullptr) kind = choice(*entry, kStateDicts);
    if (kind == "LOCAL_STATE_DICT") {
      if (source_version_ == 2) {
        throw fault(*entry, "does not exist under version 2: use SHARDED_STATE_DICT or FULL_STATE_DICT");
      }
      note(*entry, "is taken as checkpoint.kind = \"sharded\"");
    }
    emit("checkpoint.kind", std::string(kind == "FULL_STATE_DICT" ? "full" : "sharded"), entry);
  }

  void read_offload() {
    const YamlEntry* entry = find("fsdp_offload_params");
    if (entry == nullptr) return;
    const bool of_1 = entry->text.starts_with("CPUOffload(") || entry->text == "CPUOffload";
    const bool of_2 = entry->text.find("OffloadPolicy") != std::string::npos;
    if (of_1 || of_2) {
      const std::string owner = of_1 ? "version 1's" : "version 2's";
      throw fault(*entry, "is an object of " + owner + " Python interface; in a file it must be true or false");
    }
    if (!truth(*entry)) return;
    emit("offload.params", true, entry);
    if (version_ == 2) emit("offload.pin_memory", true, entry);
  }

  void read_checkpointing() {
    const YamlEntry* entry = find("fsdp_activation_checkpointing");
    const bool enabled = truth_or("fsdp_activation_checkpointing", false);
    const YamlEntry* offload = find("fsdp_activation_checkpointing_offload");
    if (offload != nullptr && truth(*offload)) {
      if (!enabled) throw fault(*offload, "needs `fsdp_activation_checkpointing: true`");
      if (source_version_ == 1) throw fault(*offload, "needs `fsdp_version: 2`");
      note(*offload, "cannot be expressed: checkpointed inputs stay on the device");
    }
    if (enabled && source_version_ == 2 && policy_ == "NO_WRAP") {
      throw fault(*entry, "needs `fsdp_auto_wrap_policy`: Accelerate fails without one under version 2");
    }
    if (entry != nullptr) emit("activation_checkpointing", enabled, entry);
  }

  void read_precision() {
    const YamlEntry* entry = find_entry(top_, "mixed_precision");
    std::string precision;
    if (entry != nullptr) {
      precision = entry->kind == YamlEntry::Kind::kBool && !entry->flag ? "no" : lower_case(entry->text);
    } else if (const YamlEntry* old = find_entry(top_, "fp16"); old != nullptr && is_truthy(*old)) {
      precision = "fp16";
      entry = old;
    } else {
      return;
    }
    if (std::find(kPrecisions.begin(), kPrecisions.end(), precision) == kPrecisions.end()) {
      throw fault(*entry, "must be one of " + quoted_list(kPrecisions), nearest_name(precision, kPrecisions));
    }
    if (precision == "no") return;
    if (precision == "fp8") note(*entry, "is taken as bf16");
    const std::string dtype = precision == "fp16" ? "float16" : "bfloat16";
    emit("mixed_precision.param", dtype, entry);
    emit("mixed_precision.reduce", dtype, entry);
    if (source_version_ == 2) emit("mixed_precision.output", dtype, entry);
    emit("mixed_precision.cast_forward_inputs", true, entry);
  }

  void gather_obsolete() {
    std::vector<const YamlEntry*> entries;
    for (const std::string_view key : kObsolete) {
      if (const YamlEntry* entry = find(key)) entries.push_back(entry);
    }
    std::sort(entries.begin(), entries.end(),
              [](const YamlEntry* a, const YamlEntry* b) { return a->key_source.line < b->key_source.line; });
    for (const YamlEntry* entry : entries) {
      const std::string& key = entry->source.key;
      result_.obsolete.push_back(key);
      result_.warning += result_.warning.empty() ? file_ + ": obsolete under version 2, to be removed: " : ", ";
      result_.warning += "`" + key + "` (line " + std::to_string(entry->key_source.line) + ")";
    }
  }

  const std::string& file_;
  const TranslationContext& context_;
  YamlBlock top_;
  YamlBlock fsdp_;
  YamlBlock parallelism_;
  int64_t source_version_ = 1;  // of the file
  int64_t version_ = 1;         // of the result
  bool converts_ = false;
  std::string_view policy_;
  int64_t replicate_ = 1;
  Translation result_;
};

}  // namespace

Translation translate_accelerate(std::string_view text, const std::string& file, const TranslationContext& context) {
  return Translator(text, file, context).run();
}

}  // namespace fsdp2
