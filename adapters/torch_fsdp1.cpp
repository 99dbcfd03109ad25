// The keywords of PyTorch's FullyShardedDataParallel (torch 2.11), as a JSON object: what json.dumps makes of the
// dictionary that a Python host passes. Objects are written by name: "FULL_SHARD", "torch.bfloat16", class names.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/entry_reading.hpp"
#include "adapters/fsdp1_names.hpp"
#include "adapters/json_settings.hpp"
#include "adapters/translator.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using Kind = Setting::Kind;

constexpr std::array<std::string_view, 5> kPolicyNames{"transformer", "ModuleWrapPolicy", "size",
                                                       "transformer_auto_wrap_policy", "size_based_auto_wrap_policy"};

class Fsdp1Translator : public Translator {
 public:
  Fsdp1Translator(const Setting& root, const std::string& file, const TranslationContext& context)
      : Translator(file), keywords_(table_of(root, "")), version_(context.version.value_or(1)), ranks_(context.ranks) {}

  Translation run() {
    check_keywords();
    emit("version", version_);
    read_policy();
    read_strategy();
    read_offload();
    if (version_ == 1) read_prefetch();
    read_precision();
    read_ignored();
    const Setting* sync = find("sync_module_states");
    emit("load.mode", std::string(flag_or("sync_module_states", false) ? "broadcast" : "full"), sync);
    if (version_ == 2) {
      result_.notes.push_back(file_ +
                              ": converted from version 1 to 2; what version 1 means by its other keywords is kept");
      gather_obsolete();
    }
    return std::move(result_);
  }

 private:
  const Setting* find(std::string_view key) const { return find_entry(keywords_, key); }

  static bool flag(const Setting& entry) {
    if (entry.kind == Kind::kBool) return entry.flag;
    throw setting_fault(entry, "must be true or false");
  }

  bool flag_or(std::string_view key, bool standard) const {
    const Setting* entry = find(key);
    return entry == nullptr ? standard : flag(*entry);
  }

  static void check_keys(const SettingsTable& table, std::span<const std::string_view> known,
                         const std::string& owner) {
    for (const auto& [key, entry] : table) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      throw error_at(entry.key_source, key, owner + " has no keyword `" + key + "`", nearest_name(key, known));
    }
  }

  void check_keywords() const {
    check_keys(keywords_, fsdp1::kKeywords, "FullyShardedDataParallel");
    for (const std::string_view key : {"forward_prefetch", "limit_all_gathers", "use_orig_params"}) {
      flag_or(key, false);
    }
  }

  void read_policy() {
    const Setting* entry = find("auto_wrap_policy");
    wraps_ = entry != nullptr;
    if (entry == nullptr) {
      emit("wrap.policy", std::string("none"));
    } else if (entry->kind == Kind::kList) {
      emit_classes(*entry, *entry);
    } else if (entry->kind == Kind::kText) {
      emit_named_policy(*entry, entry->text, nullptr);
    } else if (entry->kind == Kind::kMap && entry->members.size() == 1) {
      emit_named_policy(*entry, entry->members[0].key, &entry->members[0]);
    } else {
      throw setting_fault(*entry, R"(must be a list of class names, or one of {"transformer": [names]}, )"
                                  R"({"size": {"min_num_params": n}})");
    }
  }

  void emit_named_policy(const Setting& entry, const std::string& written, const Setting* detail) {
    const std::string name = last_name(written);
    if (std::find(kPolicyNames.begin(), kPolicyNames.end(), name) == kPolicyNames.end()) {
      throw setting_fault(entry,
                          "names the unknown policy \"" + shown(written) + "\"; there are " + quoted_list(kPolicyNames),
                          nearest_name(name, kPolicyNames));
    }
    if (name.starts_with("size")) {
      emit_size(entry, detail);
    } else if (detail == nullptr) {
      emit("wrap.policy", std::string("transformer"), &entry);
    } else {
      const Setting* classes = detail;
      if (detail->kind == Kind::kMap && detail->members.size() == 1) classes = detail->members.data();
      emit_classes(entry, *classes);
    }
  }

  void emit_classes(const Setting& entry, const Setting& list) {
    std::vector<std::string> classes = list.list;
    if (list.kind == Kind::kText) classes = {list.text};
    for (std::string& name : classes) name = last_name(name);
    if (classes.empty() || std::find(classes.begin(), classes.end(), "") != classes.end()) {
      throw setting_fault(list, "must be a list of class names");
    }
    emit("wrap.policy", std::string("transformer"), &entry);
    emit("wrap.layer_classes", std::move(classes), &list);
  }

  void emit_size(const Setting& entry, const Setting* detail) {
    const Setting* least = detail;
    if (detail != nullptr && detail->kind == Kind::kMap) {
      check_keys(table_of(*detail, "auto_wrap_policy"), std::array<std::string_view, 1>{"min_num_params"},
                 "size_based_auto_wrap_policy");
      least = find_member(*detail, "min_num_params");
    }
    int64_t count = 100'000'000;
    if (least != nullptr) {
      if (least->kind != Kind::kInt || least->whole < 0)
        throw setting_fault(*least, "must be a whole number, 0 or more");
      count = least->whole;
    }
    emit("wrap.policy", std::string("size"), &entry);
    emit("wrap.min_num_params", count, least);
  }

  std::vector<int64_t> mesh_sizes() const {
    const Setting* mesh = find("device_mesh");
    if (mesh == nullptr) return {};
    std::vector<std::string> texts = mesh->list;
    if (mesh->kind == Kind::kInt) texts = {mesh->text};
    std::vector<int64_t> sizes;
    for (const std::string& text : texts) {
      const std::optional<int64_t> size = int_of(text);
      if (!size || *size < 1) throw setting_fault(*mesh, "must hold whole numbers, 1 or more");
      sizes.push_back(*size);
    }
    if (sizes.empty() || sizes.size() > 2) throw setting_fault(*mesh, "must be [ranks] or [replicas, ranks]");
    return sizes;
  }

  void read_strategy() {
    const Setting* entry = find("sharding_strategy");
    std::string_view name = fsdp1::kStrategies[0];
    if (entry != nullptr) {
      const std::string written = last_name(entry->text);
      const auto* const found = std::find(fsdp1::kStrategies.begin(), fsdp1::kStrategies.end(), written);
      if (found == fsdp1::kStrategies.end()) {
        throw setting_fault(*entry, "must be one of " + quoted_list(fsdp1::kStrategies),
                            nearest_name(written, fsdp1::kStrategies));
      }
      name = *found;
    }
    if (ranks_.num_processes == 1 && name != "NO_SHARD") {
      result_.notes.push_back(file_ + ": on one rank PyTorch runs `sharding_strategy` " + std::string(name) +
                              " as NO_SHARD");
      name = "NO_SHARD";
    }
    const bool hybrid = name.find("HYBRID") != std::string_view::npos;
    const std::string base = lower_case(name.starts_with('_') ? name.substr(1) : name);
    emit("strategy", base, entry);
    emit("reshard_after_forward", base == "full_shard" || base == "hybrid_shard", entry);
    const Setting* mesh = find("device_mesh");
    const Setting* group = find("process_group");
    if (mesh != nullptr && group != nullptr) {
      throw setting_fault(*group, "cannot stand beside `device_mesh`");
    }
    if (group != nullptr) note(*group, "has no counterpart: ranks are those of the communicator that the host passes");
    if (hybrid && !wraps_ && mesh == nullptr && group == nullptr) {
      throw setting_fault(*entry, "needs `auto_wrap_policy`, `process_group` or `device_mesh`, as in PyTorch");
    }
    const std::vector<int64_t> sizes = mesh_sizes();
    if (hybrid && mesh == nullptr && group == nullptr && ranks_.num_nodes) {  // inside a node, over nodes
      const Setting known = count_setting("num_nodes", *ranks_.num_nodes);
      emit("mesh.replicate", *ranks_.num_nodes, &known);
      emit("mesh.shard", int64_t{-1}, entry);
    }
    if (sizes.empty() || (!hybrid && ranks_.num_processes == 1)) return;
    if (hybrid != (sizes.size() == 2)) {
      throw setting_fault(*mesh, hybrid ? "must be [replicas, ranks] for a hybrid strategy"
                                        : "must be [ranks]: two dimensions go with the hybrid strategies");
    }
    if (hybrid) emit("mesh.replicate", sizes[0], mesh);
    // Ranks that hold everything are replicas of one.
    if (base != "no_shard") emit("mesh.shard", sizes.back(), mesh);
  }

  void read_offload() {
    const Setting* entry = find("cpu_offload");
    if (entry == nullptr) return;
    bool on = entry->kind == Kind::kBool && entry->flag;
    if (entry->kind == Kind::kMap) {
      check_keys(table_of(*entry, "cpu_offload"), std::array<std::string_view, 1>{"offload_params"}, "CPUOffload");
      const Setting* params = find_member(*entry, "offload_params");
      on = params != nullptr && flag(*params);
      entry = params == nullptr ? entry : params;
    } else if (entry->kind != Kind::kBool) {
      throw setting_fault(*entry, R"(must be {"offload_params": true} or false)");
    }
    if (!on) return;
    emit("offload.params", true, entry);
    emit("offload.pin_memory", true, entry);  // it always pins
  }

  void read_prefetch() {
    const auto written = keywords_.find("backward_prefetch");
    int64_t depth = 1;
    const Setting* entry = written == keywords_.end() ? nullptr : &written->second;
    if (entry != nullptr && entry->kind == Kind::kNull) depth = 0;
    if (entry != nullptr && entry->kind != Kind::kNull) {
      const std::string name = last_name(entry->text);
      if (std::find(fsdp1::kBackwardPrefetches.begin(), fsdp1::kBackwardPrefetches.end(), name) ==
          fsdp1::kBackwardPrefetches.end()) {
        throw setting_fault(*entry, "must be one of " + quoted_list(fsdp1::kBackwardPrefetches) + ", or null",
                            nearest_name(name, fsdp1::kBackwardPrefetches));
      }
      if (name == fsdp1::kBackwardPrefetches[1]) {
        note(*entry, "is taken as prefetch.backward = 1: gathers are started before a unit's backward only");
      }
    }
    emit("prefetch.backward", depth, entry);
    emit("prefetch.forward", int64_t{flag_or("forward_prefetch", false) ? 1 : 0}, find("forward_prefetch"));
  }

  void read_precision() {
    const Setting* map = find("mixed_precision");
    if (map == nullptr) return;
    dtypes_ = table_of(*map, "mixed_precision");
    check_keys(dtypes_, fsdp1::kPrecisionKeywords, "MixedPrecision");
    for (const std::string_view key : {"param_dtype", "reduce_dtype", "buffer_dtype"}) {
      const Setting* dtype = find_entry(dtypes_, key);
      if (dtype == nullptr || !dtype_of(dtype->text).empty()) continue;
      throw setting_fault(*dtype, R"(must be "float32", "float16" or "bfloat16")");
    }
    const Setting* param = find_entry(dtypes_, "param_dtype");
    const Setting* reduce = find_entry(dtypes_, "reduce_dtype");
    if (param != nullptr) emit("mixed_precision.param", dtype_of(param->text), param);
    if (reduce == nullptr) reduce = param;
    if (reduce != nullptr) emit("mixed_precision.reduce", dtype_of(reduce->text), reduce);
    const Setting* inner = find_entry(dtypes_, "cast_forward_inputs");
    const Setting* outer = find_entry(dtypes_, "cast_root_forward_inputs");
    const bool casts = (inner != nullptr && flag(*inner)) || outer == nullptr || flag(*outer);
    if (param != nullptr) emit("mixed_precision.cast_forward_inputs", casts, inner != nullptr ? inner : outer);
    for (const std::string_view key : {"buffer_dtype", "keep_low_precision_grads"}) {
      const Setting* unused = find_entry(dtypes_, key);
      const bool off = unused == nullptr || (unused->kind == Kind::kBool && !unused->flag);
      if (!off && version_ == 1) note(*unused, "has no counterpart");
    }
  }

  void read_ignored() {
    const Setting* modules = find("ignored_modules");
    const Setting* states = find("ignored_states");
    if (modules != nullptr && states != nullptr) {
      throw setting_fault(*states, "cannot stand beside `ignored_modules`");
    }
    const Setting* entry = modules != nullptr ? modules : states;
    if (entry == nullptr) return;
    if (entry->kind != Kind::kList) throw setting_fault(*entry, "must be a list of module paths");
    std::vector<std::string> regexes;
    for (const std::string& path : entry->list) {
      if (path.empty()) throw setting_fault(*entry, "must be a list of module paths");
      regexes.push_back(fsdp1::exactly(path));
    }
    emit("ignored_modules", std::move(regexes), entry);
  }

  void gather_obsolete() {
    std::vector<const Setting*> entries;
    for (const std::string_view key : fsdp1::kObsolete) entries.push_back(find(key));
    entries.push_back(find_entry(dtypes_, "buffer_dtype"));
    entries.push_back(find_entry(dtypes_, "keep_low_precision_grads"));
    warn_obsolete(std::move(entries));
  }

  SettingsTable keywords_;
  SettingsTable dtypes_;
  int64_t version_;
  const RankCounts& ranks_;
  bool wraps_ = false;
};

}  // namespace

Translation translate_torch_fsdp1(std::string_view text, const std::string& file, const TranslationContext& context) {
  return Fsdp1Translator(read_json(text, file, JsonExtras::kComments), file, context).run();
}

Translation translate_torch_fsdp1_keys(std::span<const HostKey> keys, const std::string& name,
                                       const TranslationContext& context) {
  return Fsdp1Translator(settings_of(keys, name), name, context).run();
}

}  // namespace fsdp2
