// LightningCLI's YAML: FSDPStrategy, which is version 1, and ModelParallelStrategy, under which the user's own code
// shards with version 2.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/entry_reading.hpp"
#include "adapters/fsdp1_keywords.hpp"
#include "adapters/fsdp1_names.hpp"
#include "adapters/translation_draft.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

constexpr std::array<std::string_view, 2> kLightningNames{"fsdp", "fsdp_cpu_offload"};
constexpr std::array<std::string_view, 2> kLightningClasses{"FSDPStrategy", "ModelParallelStrategy"};
/// Keywords of FSDPStrategy itself; all others go to PyTorch.
constexpr std::array<std::string_view, 10> kLightningOwn{
    "accelerator",    "parallel_devices",         "cluster_environment",
    "checkpoint_io",  "precision_plugin",         "process_group_backend",
    "timeout",        "activation_checkpointing", "activation_checkpointing_policy",
    "state_dict_type"};
constexpr std::array<std::string_view, 5> kModelParallelOwn{
    "data_parallel_size", "tensor_parallel_size", "save_distributed_checkpoint", "process_group_backend", "timeout"};
constexpr std::array<std::string_view, 5> kLightningPrecisions{"32-true", "16-true", "bf16-true", "16-mixed",
                                                               "bf16-mixed"};
constexpr std::array<std::string_view, 4> kModelParallelPrecisions{"32-true", "16-true", "bf16-true", "bf16-mixed"};
constexpr std::array<std::string_view, 2> kLightningStateDicts{"full", "sharded"};
constexpr std::array<std::string_view, 2> kLightningClipping{"norm", "value"};

/// Which modules: by class, or by a function that only Python can call.
struct ModulePolicy {
  const YamlEntry* entry = nullptr;
  std::optional<std::vector<std::string>> classes;
};

class LightningTranslator {
 public:
  LightningTranslator(std::string_view text, const std::string& file, const TranslationContext& context)
      : context_(context), draft_(file) {
    const Setting root = read_yaml(text, file);
    table_of(root, "");  // must be a map
    const Setting* trainer = &child_of(root, "trainer");
    if (trainer->kind == Setting::Kind::kNull) {  // a file for all subcommands
      trainer = &child_of(child_of(root, "fit"), "trainer");
    }
    trainer_ = table_of(*trainer, "trainer");
    put_known("num_nodes", "num_nodes", context.ranks.num_nodes);
    put_known("devices", "processes_per_node", context.ranks.processes_per_node);
    const Setting& strategy = child_of(*trainer, "strategy");
    if (strategy.kind != Setting::Kind::kMap) return;
    strategy_ = table_of(strategy, "strategy");
    for (const char* block : {"init_args", "dict_kwargs"}) {
      const Setting& arguments = child_of(strategy, block);
      for (const auto& [key, entry] : table_of(arguments, block)) arguments_.insert_or_assign(key, entry);
      const Setting& precision = child_of(arguments, "mixed_precision");
      if (precision.kind == Setting::Kind::kMap) mixed_precision_ = read_object(precision);
      for (const char* policy : {"auto_wrap_policy", "activation_checkpointing_policy"}) {
        const Setting& object = child_of(arguments, policy);
        if (object.kind == Setting::Kind::kMap) policies_[policy] = read_object(object);
      }
    }
  }

  Translation run() {
    if (is_model_parallel()) {
      run_model_parallel();
    } else {
      run_fsdp();
    }
    return draft_.finish();
  }

 private:
  /// As an option of its command line would.
  void put_known(const std::string& key, const std::string& name, std::optional<int64_t> count) {
    const std::optional<std::string> note = put_count(trainer_, key, name, count);
    if (note) draft_.remark(*note);
  }

  const YamlEntry* argument(std::string_view key) const { return find_entry(arguments_, key); }

  /// Keywords of a Python object: those below `init_args` where it has a class_path.
  YamlBlock read_object(const Setting& node) const {
    const Setting& inner = child_of(node, "init_args");
    const bool has_class = child_of(node, "class_path").kind != Setting::Kind::kNull;
    return table_of(has_class ? inner : node, has_class ? "init_args" : "mixed_precision");
  }

  bool is_model_parallel() {
    const YamlEntry* entry = find_entry(trainer_, "strategy");
    if (entry == nullptr) {
      Source source;
      source.file = draft_.file();
      throw error_at(source, "strategy",
                     "`strategy` is missing below `trainer`; translated are " + quoted_list(kLightningNames) + ", " +
                         quoted_list(kLightningClasses));
    }
    if (entry->kind != YamlEntry::Kind::kMap) {
      if (std::find(kLightningNames.begin(), kLightningNames.end(), entry->text) != kLightningNames.end()) return false;
      throw setting_fault(*entry,
                          "is not translated; accepted are " + quoted_list(kLightningNames) + " or a class_path of " +
                              quoted_list(kLightningClasses),
                          nearest_name(entry->text, kLightningNames));
    }
    const YamlEntry* path = find_entry(strategy_, "class_path");
    if (path == nullptr) throw error_at(entry->source, "class_path", "`strategy` has no `class_path`");
    const std::string name = last_name(path->text);
    if (name == kLightningClasses[1]) return true;
    if (name == kLightningClasses[0]) return false;
    throw setting_fault(*path, "is not translated; accepted are " + quoted_list(kLightningClasses),
                        nearest_name(name, kLightningClasses));
  }

  void take_version(int64_t of_host) {
    version_ = context_.version.value_or(of_host);
    if (version_ < of_host) {
      throw setting_fault(*find_entry(strategy_, "class_path"), "is version 2, which cannot be converted to version 1");
    }
    draft_.emit("version", version_);
    if (version_ == of_host) return;
    draft_.note("converted from FSDPStrategy, version 1, to version 2; what its keys mean is kept");
  }

  template <typename Names>
  void check_arguments(const std::vector<std::string_view>& known, const Names& names) const {
    for (const auto& [key, entry] : arguments_) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      throw error_at(entry.key_source, key, std::string(names) + " knows no argument `" + key + "`",
                     nearest_name(key, known));
    }
  }

  int64_t nodes() const {
    const YamlEntry* entry = find_entry(trainer_, "num_nodes");
    return entry == nullptr ? 1 : entry_whole(*entry, 1, "a number of nodes, 1 or more");
  }

  // FSDPStrategy

  void run_fsdp() {
    std::vector<std::string_view> known(kLightningOwn.begin(), kLightningOwn.end());
    known.insert(known.end(), fsdp1::kKeywords.begin(), fsdp1::kKeywords.end());
    check_arguments(known, kLightningClasses[0]);
    take_version(1);
    const ModulePolicy wrap = read_policy("auto_wrap_policy");
    emit_wrap(wrap);
    emit_fsdp_strategy(wrap);
    emit_checkpointing(wrap);
    emit_offload();
    const YamlEntry* kind = argument("state_dict_type");
    draft_.emit("checkpoint.kind", std::string(kind == nullptr ? "full" : entry_choice(*kind, kLightningStateDicts)),
                kind);
    fsdp1::translate_keywords(arguments_, version_, draft_);
    emit_precision();
    if (const YamlEntry* clip = clipping()) {
      if (clips_by_norm()) {
        throw setting_fault(*clip,
                            "is not possible with FSDPStrategy, which refuses `gradient_clip_algorithm: norm`, the "
                            "default; give `gradient.clip_norm` beside `config` instead");
      }
      draft_.note(*clip, "cannot be expressed: gradients are clipped by their norm only");
    }
  }

  ModulePolicy read_policy(const std::string& key) const {
    ModulePolicy policy;
    policy.entry = argument(key);
    if (policy.entry == nullptr) return policy;
    const std::vector<std::string>* written = nullptr;
    if (policy.entry->kind == YamlEntry::Kind::kList) written = &policy.entry->list;
    const auto object = policies_.find(key);
    if (object != policies_.end()) {  // a ModuleWrapPolicy
      const YamlEntry* classes = find_entry(object->second, "module_classes");
      if (classes != nullptr) written = &classes->list;
    }
    if (written == nullptr) return policy;
    policy.classes.emplace();
    for (const std::string& path : *written) {
      if (last_name(path).empty()) throw setting_fault(*policy.entry, "must be a list of classes");
      policy.classes->push_back(last_name(path));
    }
    return policy;
  }

  void emit_wrap(const ModulePolicy& wrap) {
    if (wrap.entry == nullptr || (wrap.classes && wrap.classes->empty())) {
      draft_.emit("wrap.policy", std::string("none"), wrap.entry);
    } else if (wrap.classes) {
      draft_.emit("wrap.policy", std::string("transformer"), wrap.entry);
      draft_.emit("wrap.layer_classes", *wrap.classes, wrap.entry);
    } else {
      draft_.note(*wrap.entry,
                  "is a function in Python, which cannot be called here: give `wrap.policy` beside `config`");
    }
  }

  void emit_fsdp_strategy(const ModulePolicy& wrap) {
    const YamlEntry* entry = argument("sharding_strategy");
    const std::string_view name = entry == nullptr ? fsdp1::kStrategies[0] : entry_choice(*entry, fsdp1::kStrategies);
    draft_.emit_strategy(fsdp1::canonical_strategy(name), fsdp1::reshards(name), entry);
    const YamlEntry* mesh = argument("device_mesh");
    const YamlEntry* group = argument("process_group");
    if (mesh != nullptr && group != nullptr) throw setting_fault(*group, "excludes `device_mesh`: give one of the two");
    if (group != nullptr) draft_.note(*group, "cannot be expressed: give `mesh` beside `config`");
    std::optional<std::vector<int64_t>> sizes;
    if (mesh != nullptr) {
      sizes = entry_sizes(*mesh);
      if (!sizes || sizes->size() != 2 || sizes->front() < 1 || sizes->back() < 1) {
        throw setting_fault(*mesh, "must be two numbers of ranks, [replicate, shard]");
      }
    }
    if (!fsdp1::is_hybrid(name)) {
      if (mesh != nullptr) draft_.note(*mesh, "has no effect: it goes with a hybrid `sharding_strategy` only");
    } else if (sizes) {
      draft_.emit("mesh.replicate", sizes->front(), mesh);
      draft_.emit("mesh.shard", sizes->back(), mesh);
    } else {
      if (wrap.entry == nullptr && group == nullptr) {
        throw setting_fault(*entry, "needs `auto_wrap_policy`, `device_mesh` or `process_group` beside it");
      }
      // Untold, the plugin takes the nodes that there are.
      const YamlEntry* told = find_entry(trainer_, "num_nodes");
      if (told == nullptr) return;
      draft_.emit("mesh.replicate", nodes(), told);
      draft_.emit("mesh.shard", int64_t{-1}, entry);
    }
  }

  void emit_checkpointing(const ModulePolicy& wrap) {
    const YamlEntry* old = argument("activation_checkpointing");
    const ModulePolicy policy = read_policy("activation_checkpointing_policy");
    if (old != nullptr && policy.entry != nullptr) {
      throw setting_fault(*old, "excludes `activation_checkpointing_policy`, which took its place");
    }
    if (policy.entry != nullptr) {
      draft_.emit("activation_checkpointing", true, policy.entry);
      if (!policy.classes || policy.classes != wrap.classes) {
        draft_.note(*policy.entry,
                    "is taken as true, for all units: other modules than `auto_wrap_policy` names are not "
                    "told apart");
      }
    } else if (old != nullptr) {
      draft_.emit("activation_checkpointing", true, old);
      draft_.note(*old,
                  "is deprecated and taken as true, for all units; `activation_checkpointing_policy` took its place");
    }
  }

  void emit_offload() {
    const YamlEntry* entry = argument("cpu_offload");
    const YamlEntry* strategy = find_entry(trainer_, "strategy");
    if (strategy->text == kLightningNames[1]) {
      draft_.emit("offload.params", true, strategy);
    } else if (entry != nullptr && entry->kind == YamlEntry::Kind::kMap) {
      throw setting_fault(*entry, "must be true or false in a file");
    } else if (entry != nullptr && entry_flag(*entry)) {
      draft_.emit("offload.params", true, entry);
    }
  }

  // Precision and clipping

  template <typename Names>
  std::optional<std::string> precision(const Names& allowed) const {
    const YamlEntry* entry = find_entry(trainer_, "precision");
    if (entry == nullptr) return std::nullopt;
    std::string word = entry->text;
    if (word == "32") word = "32-true";
    if (word == "16" || word == "bf16") word += "-mixed";
    if (std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
      throw setting_fault(*entry, "must be one of " + quoted_list(allowed), nearest_name(word, allowed));
    }
    return word;
  }

  void emit_precision() {
    const YamlEntry* entry = find_entry(trainer_, "precision");
    const std::string word = precision(kLightningPrecisions).value_or("32-true");
    if (word == "16-true" || word == "bf16-true") {
      draft_.note(*entry, "also converts the module there: here it is trained in the dtype it was saved in");
    }
    const YamlEntry* object = argument("mixed_precision");
    if (object != nullptr) {
      if (object->kind != YamlEntry::Kind::kMap) {
        throw setting_fault(*object, "must be a map with the keywords of a MixedPrecision");
      }
      fsdp1::translate_precision(mixed_precision_, version_, draft_);
      if (entry != nullptr) draft_.note(*entry, "has no effect on what FSDP casts: `mixed_precision` comes first");
      return;
    }
    if (word == "32-true") return;
    const std::string dtype = word.starts_with("bf16") ? "bfloat16" : "float16";
    draft_.emit("mixed_precision.param", dtype, entry);
    draft_.emit("mixed_precision.reduce", dtype, entry);
    draft_.emit("mixed_precision.cast_forward_inputs", true, entry);
  }

  /// `gradient_clip_val` where it clips.
  const YamlEntry* clipping() const {
    const YamlEntry* entry = find_entry(trainer_, "gradient_clip_val");
    return entry != nullptr && entry_number(*entry) > 0 ? entry : nullptr;
  }

  bool clips_by_norm() const {
    const YamlEntry* entry = find_entry(trainer_, "gradient_clip_algorithm");
    return entry == nullptr || entry_choice(*entry, kLightningClipping) == "norm";
  }

  // ModelParallelStrategy

  void run_model_parallel() {
    check_arguments({kModelParallelOwn.begin(), kModelParallelOwn.end()}, kLightningClasses[1]);
    take_version(2);
    const YamlEntry* path = find_entry(strategy_, "class_path");
    draft_.emit_strategy("full_shard", std::string("auto"), path);
    draft_.note(*path,
                "leaves resharding, precision, offload and units to `configure_model()`, which is not read: give "
                "them beside `config`");
    refuse_tensor_parallel();
    const YamlEntry* size = argument("data_parallel_size");
    const bool is_auto = size == nullptr || size->text == "auto";
    draft_.emit("mesh.replicate", int64_t{1});
    if (is_auto) {
      draft_.emit("mesh.shard", nodes(), find_entry(trainer_, "num_nodes"));
    } else {
      draft_.emit("mesh.shard", entry_whole(*size, 1, "\"auto\" or a number of ranks, 1 or more"), size);
    }
    const YamlEntry* sharded = argument("save_distributed_checkpoint");
    const bool is_full = sharded != nullptr && !entry_flag(*sharded);
    draft_.emit("checkpoint.kind", std::string(is_full ? "full" : "sharded"), sharded);
    precision(kModelParallelPrecisions);
    const YamlEntry* clip = clipping();
    if (clip == nullptr) return;
    if (clips_by_norm()) {
      draft_.emit("gradient.clip_norm", entry_number(*clip), clip);
    } else {
      draft_.note(*clip, "cannot be expressed: gradients are clipped by their norm only");
    }
  }

  void refuse_tensor_parallel() const {
    const YamlEntry* size = argument("tensor_parallel_size");
    if (size != nullptr && size->text != "auto") {
      if (entry_whole(*size, 1, "\"auto\" or a number of ranks, 1 or more") == 1) return;
      throw setting_fault(*size, "is not possible: only data-parallel ranks are sharded, so it must be 1");
    }
    const std::optional<int64_t> devices = devices_of_a_node();
    if (devices == 1) return;
    const std::string count = devices ? std::to_string(*devices) : "an unknown number";
    const YamlEntry& at = size != nullptr ? *size : *find_entry(strategy_, "class_path");
    throw error_at(at.source, "tensor_parallel_size",
                   "`tensor_parallel_size: auto`" + std::string(size == nullptr ? ", the default," : "") +
                       " means the devices of a node, " + count +
                       ": only data-parallel ranks are sharded, so write `tensor_parallel_size: 1`");
  }

  std::optional<int64_t> devices_of_a_node() const {
    const YamlEntry* entry = find_entry(trainer_, "devices");
    if (entry == nullptr) return std::nullopt;
    if (entry->kind == YamlEntry::Kind::kList) return static_cast<int64_t>(entry->list.size());
    const std::optional<int64_t> count = as_int(*entry);
    return count && *count > 0 ? count : std::nullopt;
  }

  const TranslationContext& context_;
  TranslationDraft draft_;
  YamlBlock trainer_;
  YamlBlock strategy_;
  YamlBlock arguments_;
  YamlBlock mixed_precision_;
  std::map<std::string, YamlBlock> policies_;
  int64_t version_ = 1;  // of the result
};

}  // namespace

Translation translate_lightning(std::string_view text, const std::string& file, const TranslationContext& context) {
  return LightningTranslator(text, file, context).run();
}

}  // namespace fsdp2
