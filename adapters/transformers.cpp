// The FSDP part of transformers' TrainingArguments: `fsdp_config` alone, or an object that holds it. Transformers makes
// the keywords of Accelerate's plugin from it, with defaults of its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/hugging_face.hpp"
#include "adapters/json_settings.hpp"
#include "registry/host_text.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using Kind = Setting::Kind;

constexpr std::array<std::string_view, 7> kFsdpWords{"full_shard",         "shard_grad_op", "no_shard", "hybrid_shard",
                                                     "hybrid_shard_zero2", "offload",       "auto_wrap"};
constexpr std::array<std::string_view, 18> kConfigKeys{"version",
                                                       "reshard_after_forward",
                                                       "cpu_offload",
                                                       "auto_wrap_policy",
                                                       "transformer_layer_cls_to_wrap",
                                                       "min_num_params",
                                                       "cpu_ram_efficient_loading",
                                                       "state_dict_type",
                                                       "activation_checkpointing",
                                                       "forward_prefetch",
                                                       "backward_prefetch",
                                                       "sync_module_states",
                                                       "use_orig_params",
                                                       "limit_all_gathers",
                                                       "xla",
                                                       "xla_fsdp_settings",
                                                       "xla_fsdp_grad_ckpt",
                                                       "xla_fsdp_v2"};
constexpr std::array<std::string_view, 6> kObsoleteKeys{"backward_prefetch",  "forward_prefetch",  "use_orig_params",
                                                        "sync_module_states", "limit_all_gathers", "sharding_strategy"};
// Arguments that tell an object of TrainingArguments from a bare `fsdp_config`.
constexpr std::array<std::string_view, 9> kArguments{"output_dir",
                                                     "bf16",
                                                     "fp16",
                                                     "max_grad_norm",
                                                     "gradient_checkpointing",
                                                     "learning_rate",
                                                     "num_train_epochs",
                                                     "max_steps",
                                                     "per_device_train_batch_size"};

/// What `fsdp` asks for, with the words of its old form.
struct LegacyWords {
  const Setting* strategy = nullptr;  // the setting that has the word
  std::string word;
  const Setting* offload = nullptr;
};

class TransformersTranslator : public HuggingFaceTranslator {
 public:
  TransformersTranslator(const Setting& root, const std::string& file, const TranslationContext& context)
      : HuggingFaceTranslator(file), root_(root), context_(context) {}

  Translation run() {
    read_root();
    read_version();
    refuse_nulls();
    read_words();
    read_policy();
    source_version_ == 1 ? read_strategy_1() : read_strategy_2();
    read_loading();
    emit_checkpoint(find("state_dict_type"), checkpoint_default());
    read_offload();
    read_checkpointing();
    read_arguments();
    note_unread();
    if (version_ == 2) {
      std::vector<const Setting*> entries;
      for (const std::string_view key : kObsoleteKeys) {
        if (key != "sharding_strategy" || source_version_ == 2) entries.push_back(find(key));
      }
      warn_obsolete(std::move(entries));
    }
    return std::move(result_);
  }

 private:
  const Setting* find(std::string_view key) const { return find_entry(config_, key); }
  const Setting* argument(std::string_view key) const {
    const Setting* entry = has_arguments_ ? find_member(root_, key) : nullptr;
    return entry == nullptr || entry->kind == Kind::kNull ? nullptr : entry;
  }

  [[noreturn]] void throw_not_requested(const Setting* entry) const {
    const std::string sentence = "no FSDP is requested: `fsdp` must be true, `fsdp_config` alone does nothing";
    if (entry != nullptr) throw error_at(entry->source, "fsdp", sentence);
    throw error_at(root_.source, "fsdp", sentence);
  }

  void read_root() {
    if (root_.kind != Kind::kMap) throw error_at(root_.source, {}, "the file must be a map");
    has_arguments_ = find_member(root_, "fsdp") != nullptr || find_member(root_, "fsdp_config") != nullptr ||
                     std::any_of(kArguments.begin(), kArguments.end(),
                                 [&](std::string_view key) { return find_member(root_, key) != nullptr; });
    if (!has_arguments_) return take_config(root_);
    const Setting* fsdp = argument("fsdp");
    if (fsdp == nullptr || !is_truthy(*fsdp)) throw_not_requested(find_member(root_, "fsdp"));
    const Setting* config = argument("fsdp_config");
    if (config == nullptr) return;
    if (config->kind != Kind::kText) {
      if (config->kind != Kind::kMap) throw setting_fault(*config, "must be a map, or the path of a JSON file");
      return take_config(*config);
    }
    if (!context_.read_file) throw setting_fault(*config, "names a file, which cannot be read here");
    const std::string path = beside(file_, config->text);
    take_config(read_json(context_.read_file(path, config->source), path, JsonExtras::kNone));
  }

  /// A key with "fsdp_" before it is the same, and wins over one without.
  void take_config(const Setting& map) {
    const SettingsTable written = table_of(map, "fsdp_config");
    config_ = written;
    for (const auto& [key, entry] : written) {
      if (!key.starts_with("fsdp_")) continue;
      config_.erase(key);
      config_.insert_or_assign(key.substr(5), entry);
    }
  }

  void read_version() {
    const Setting* entry = find("version");
    int64_t version = 2;
    if (entry != nullptr) {
      std::optional<int64_t> given = as_int(*entry);
      if (entry->kind == Kind::kReal && std::abs(entry->real) < 10) given = static_cast<int64_t>(entry->real);
      if (entry->kind == Kind::kBool && entry->flag) given = 1;
      if (given != 1 && given != 2) throw setting_fault(*entry, "is an unknown version; there are 1 and 2");
      version = *given;
    }
    set_versions(version, context_.version, entry, "version");
  }

  /// Where a null is not the same as nothing, transformers fails.
  void refuse_nulls() const {
    for (const std::string_view key : {"version", "auto_wrap_policy", "cpu_ram_efficient_loading",
                                       "activation_checkpointing", "reshard_after_forward"}) {
      const auto found = config_.find(key);
      if (found != config_.end() && found->second.kind == Kind::kNull) {
        throw setting_fault(found->second, "must have a value, or be left out");
      }
    }
  }

  void read_words() {
    const Setting* fsdp = argument("fsdp");
    if (fsdp == nullptr || fsdp->kind == Kind::kBool) return;
    if (fsdp->kind != Kind::kText && fsdp->kind != Kind::kList) {
      if (fsdp->kind == Kind::kMap) throw setting_fault(*fsdp, "must be true, or a list of words");
      return;  // any other value is true
    }
    std::vector<std::string> words = fsdp->list;
    if (fsdp->kind == Kind::kText) {
      for (size_t begin = 0; begin < fsdp->text.size();) {
        const size_t end = std::min(fsdp->text.find_first_of(" \t\r\n", begin), fsdp->text.size());
        if (end > begin) words.push_back(fsdp->text.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    for (const std::string& word : words) take_word(word, *fsdp);
  }

  void take_word(const std::string& word, const Setting& fsdp) {
    const bool strategy = std::find(kStrategies.begin(), kStrategies.end(), upper_case(word)) != kStrategies.end();
    if (word == "auto_wrap") return;
    if (word == "offload") {
      words_.offload = &fsdp;
    } else if (!strategy) {
      throw setting_fault(fsdp, "has the unknown word \"" + shown(word) + "\"; there are " + quoted_list(kFsdpWords),
                          nearest_name(word, kFsdpWords));
    } else if (source_version_ == 2 && word != "full_shard" && word != "shard_grad_op") {
      throw setting_fault(fsdp, "has \"" + word +
                                    "\", which only version 1 has; under version 2 there are \"full_shard\" and "
                                    "\"shard_grad_op\"");
    } else if (words_.strategy == nullptr) {
      words_.strategy = &fsdp;
      words_.word = word;
    }
  }

  void read_policy() {
    const Setting* entry = find("auto_wrap_policy");
    std::string_view policy = kPolicies[0];
    if (entry != nullptr) {
      const auto* const found = std::find(kPolicies.begin(), kPolicies.end(), entry->text);
      if (found == kPolicies.end() || entry->kind != Kind::kText) {
        throw setting_fault(*entry, "must be one of " + quoted_list(kPolicies) + ", in capitals",
                            nearest_name(entry->text, kPolicies));
      }
      policy = *found;
    }
    emit_policy(policy, entry);
    const Setting* classes = find("transformer_layer_cls_to_wrap");
    if (classes != nullptr && policy != kPolicies[0]) note(*classes, "has no effect without TRANSFORMER_BASED_WRAP");
    if (classes != nullptr && policy == kPolicies[0]) read_classes(*classes);
    const auto least = config_.find("min_num_params");
    if (policy == kPolicies[1]) {
      read_least(least == config_.end() ? nullptr : &least->second);
    } else if (const Setting* unused = find("min_num_params")) {
      note(*unused, "has no effect without SIZE_BASED_WRAP");
    }
  }

  void read_classes(const Setting& entry) {
    std::vector<std::string> classes;
    std::vector<std::string> written = entry.list;
    if (entry.kind == Kind::kText) written = {entry.text};
    if (written.empty()) throw setting_fault(entry, "must be a list of class names, or text");
    // They are joined with commas, and split at them again.
    for (const std::string& name : written) {
      for (std::string& part : split_at_commas(name)) classes.push_back(std::move(part));
    }
    emit_classes(std::move(classes), entry);
  }

  void read_least(const Setting* entry) {
    int64_t count = 0;
    if (entry != nullptr) {
      if (entry->kind != Kind::kInt) throw setting_fault(*entry, "must be a whole number, 0 or more, in digits");
      count = std::max<int64_t>(entry->whole, 0);
    }
    emit("wrap.min_num_params", count, entry);
    makes_units_ = count > 0;
  }

  void read_strategy_1() {
    const Setting* entry = find("reshard_after_forward");
    std::string_view name = kStrategies[0];
    if (entry != nullptr) {
      if (entry->kind == Kind::kBool) {
        throw setting_fault(
            *entry, "is a boolean, which only version 2 has; under version 1 it is one of " + quoted_list(kStrategies));
      }
      name = choice_of(*entry, kStrategies);
    } else if (words_.strategy != nullptr) {
      entry = words_.strategy;
      name = *std::find(kStrategies.begin(), kStrategies.end(), upper_case(words_.word));
    }
    if (name != kStrategies[0]) {
      // As accelerate: the documented meaning is taken, although the host runs FULL_SHARD.
      note(*entry, "is taken by its name, as documented; the host itself would run FULL_SHARD");
    }
    const int64_t nodes = context_.ranks.num_nodes.value_or(0);
    const Setting known = count_setting("num_nodes", nodes);
    emit_strategy_1(name, nodes, entry, &known);
    const Setting* ahead = find("forward_prefetch");
    emit_prefetch_1(find("backward_prefetch"), ahead != nullptr && truth_of(*ahead), ahead);
    for (const std::string_view key : {"use_orig_params", "limit_all_gathers"}) {
      if (const Setting* unused = find(key)) truth_of(*unused);
    }
  }

  void read_strategy_2() {
    const Setting* entry = find("reshard_after_forward");
    bool reshards = true;
    if (entry != nullptr) {
      const std::optional<bool> value = as_truth(*entry);
      if (!value) throw setting_fault(*entry, "must be true or false under version 2");
      reshards = *value;
    } else if (words_.strategy != nullptr) {
      entry = words_.strategy;
      reshards = words_.word == "full_shard";
    }
    emit_sharding(reshards, false, entry);
  }

  void read_loading() {
    const Setting* entry = find("cpu_ram_efficient_loading");
    const Setting* sync = find("sync_module_states");
    bool broadcast = entry != nullptr && truth_of(*entry);
    if (source_version_ == 1) {
      const bool synchronises = sync == nullptr || truth_of(*sync);
      if (broadcast && !synchronises) note(*sync, "is taken as true, because cpu_ram_efficient_loading is");
      if (!broadcast && sync != nullptr) entry = sync;
      broadcast = broadcast || synchronises;
    }
    emit("load.mode", std::string(broadcast ? "broadcast" : "full"), entry);
  }

  /// A null is passed on to Accelerate, which has its own default.
  std::string_view checkpoint_default() const {
    return config_.contains("state_dict_type") && source_version_ == 2 ? "SHARDED_STATE_DICT" : "FULL_STATE_DICT";
  }

  void read_offload() {
    const Setting* entry = find("cpu_offload");
    if (entry == nullptr && !config_.contains("cpu_offload")) entry = words_.offload;
    if (entry == nullptr) return;
    if (entry != words_.offload && entry->kind == Kind::kText) {
      throw setting_fault(*entry, "must be true or false, not text: transformers takes any text for true");
    }
    if (!is_truthy(*entry)) return;
    emit("offload.params", true, entry);
    if (version_ == 2) emit("offload.pin_memory", true, entry);
  }

  void read_checkpointing() {
    const Setting* entry = find("activation_checkpointing");
    const bool enabled = entry != nullptr && truth_of(*entry);
    if (enabled && source_version_ == 2 && !makes_units_) {
      throw setting_fault(*entry,
                          "needs an `auto_wrap_policy` that makes units: Accelerate fails without under version 2");
    }
    if (entry != nullptr) emit("activation_checkpointing", enabled, entry);
    const Setting* other = argument("activation_checkpointing");
    if (other == nullptr) other = argument("gradient_checkpointing");
    if (other == nullptr || !flag_of(*other)) return;
    if (enabled) throw setting_fault(*other, "cannot stand beside `activation_checkpointing` of fsdp_config");
    note(*other, "is taken as activation_checkpointing of every unit; fsdp_config has a key of its own for it");
    emit("activation_checkpointing", true, other);
  }

  static bool flag_of(const Setting& entry) {
    if (entry.kind == Kind::kBool) return entry.flag;
    throw setting_fault(entry, "must be true or false");
  }

  void read_arguments() {
    const Setting* bf16 = argument("bf16");
    const Setting* fp16 = argument("fp16");
    const bool is_bf16 = bf16 != nullptr && flag_of(*bf16);
    const bool is_fp16 = fp16 != nullptr && flag_of(*fp16);
    if (is_bf16 && is_fp16) throw setting_fault(*fp16, "contradicts `bf16: true`: only one can be on");
    if (is_bf16) emit_precision("bfloat16", *bf16);
    if (is_fp16) emit_precision("float16", *fp16);
    const Setting* limit = argument("max_grad_norm");
    if (limit == nullptr) return;
    const bool is_number = limit->kind == Kind::kInt || limit->kind == Kind::kReal;
    if (!is_number) throw setting_fault(*limit, "must be a number");
    if (*as_number(*limit) > 0) emit("gradient.clip_norm", *as_number(*limit), limit);
  }

  void note_unread() {
    if (const Setting* xla = find("xla"); xla != nullptr && is_truthy(*xla)) {
      throw setting_fault(*xla, "is not possible: that is another FSDP, of PyTorch/XLA");
    }
    for (const auto& [key, entry] : config_) {
      if (entry.kind == Kind::kNull) continue;
      const bool obsolete = std::find(kObsoleteKeys.begin(), kObsoleteKeys.end(), key) != kObsoleteKeys.end();
      if (obsolete && source_version_ == 2) continue;  // in the warning
      const bool known = std::find(kConfigKeys.begin(), kConfigKeys.end(), key) != kConfigKeys.end();
      if (!known) note(entry, unread_by("transformers", key, kConfigKeys));
      if (key.starts_with("xla_")) note(entry, "has no effect without `xla`");
    }
  }

  const Setting& root_;
  const TranslationContext& context_;
  bool has_arguments_ = false;
  SettingsTable config_;
  LegacyWords words_;
};

}  // namespace

Translation translate_transformers(std::string_view text, const std::string& file, const TranslationContext& context) {
  const Setting root = read_json(text, file, JsonExtras::kNone);
  return TransformersTranslator(root, file, context).run();
}

Translation translate_transformers_keys(std::span<const HostKey> keys, const std::string& name,
                                        const TranslationContext& context) {
  const Setting root = settings_of(keys, name);
  return TransformersTranslator(root, name, context).run();
}

}  // namespace fsdp2
