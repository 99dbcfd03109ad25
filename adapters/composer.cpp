// The YAML file of Composer's LLM Foundry. Composer reads `fsdp_config` as FSDP version 1, or as version 2 where the
// environment has FSDP_VERSION=2, and then drops every key that version 2 has not.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/entry_reading.hpp"
#include "adapters/fsdp1_names.hpp"
#include "adapters/translation_draft.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

constexpr std::array<std::string_view, 30> kComposerKeys{"activation_checkpointing",
                                                         "activation_checkpointing_reentrant",
                                                         "activation_cpu_offload",
                                                         "auto_wrap",
                                                         "te_checkpoint_wrapper",
                                                         "te_shard_fp8_weight",
                                                         "backward_prefetch",
                                                         "backward_prefetch_limit",
                                                         "cpu_offload",
                                                         "data_parallel_shard_degree",
                                                         "data_parallel_replicate_degree",
                                                         "forward_prefetch",
                                                         "forward_prefetch_limit",
                                                         "ignored_modules",
                                                         "keep_low_precision_grads",
                                                         "limit_all_gathers",
                                                         "load_monolith_rank0_only",
                                                         "load_planner",
                                                         "mixed_precision",
                                                         "process_group",
                                                         "save_planner",
                                                         "sharded_ckpt_prefix_dir",
                                                         "sharding_strategy",
                                                         "state_dict_type",
                                                         "sync_module_states",
                                                         "use_orig_params",
                                                         "verbose",
                                                         "device_mesh",
                                                         "_device_mesh",
                                                         "reshard_after_forward"};
/// The attributes of its FSDP2Config.
constexpr std::array<std::string_view, 8> kComposerKeys2{
    "device_mesh",     "reshard_after_forward",    "activation_checkpointing", "activation_cpu_offload",
    "state_dict_type", "load_monolith_rank0_only", "mixed_precision",          "verbose"};
constexpr std::array<std::string_view, 5> kComposerNoted{
    "activation_cpu_offload", "process_group", "te_checkpoint_wrapper", "te_shard_fp8_weight", "ignored_modules"};
constexpr std::array<std::string_view, 3> kComposerPrefetches{"BACKWARD_PRE", "BACKWARD_POST", "NONE"};
constexpr std::array<std::string_view, 3> kComposerMixed{"DEFAULT", "PURE", "FULL"};
constexpr std::array<std::string_view, 4> kComposerPrecisions{"fp32", "amp_fp16", "amp_bf16", "amp_fp8"};
constexpr std::array<std::string_view, 2> kComposerStateDicts{"full", "sharded"};
constexpr std::array<std::string_view, 6> kSmallDtypes{"bf16", "fp16", "float16", "bfloat16", "amp_fp16", "amp_bf16"};

constexpr int64_t kMostNoted = 50;  // of keys that nobody reads

template <typename Names>
bool is_among(std::string_view word, const Names& names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

class ComposerTranslator {
 public:
  ComposerTranslator(std::string_view text, const std::string& file, const TranslationContext& context)
      : context_(context), draft_(file) {
    const Setting root = read_yaml(text, file);
    top_ = table_of(root, "");
    model_ = table_of(child_of(root, "model"), "model");
    const Setting& parallelism = child_of(root, "parallelism_config");  // the name of Composer's own argument
    const Setting* fsdp = &child_of(root, "fsdp_config");
    const Setting* tensor = &child_of(root, "tp_config");
    if (fsdp->kind == Setting::Kind::kNull) fsdp = &child_of(parallelism, "fsdp");
    if (tensor->kind == Setting::Kind::kNull) tensor = &child_of(parallelism, "tp");
    if (fsdp->kind == Setting::Kind::kNull) {
      Source source;
      source.file = file;
      throw error_at(source, "fsdp_config", "`fsdp_config` is missing or empty: without it Composer does not shard");
    }
    fsdp_ = table_of(*fsdp, "fsdp_config");
    tensor_ = table_of(*tensor, "tp_config");
    mixed_ = child_of(*fsdp, "mixed_precision").kind == Setting::Kind::kMap
                 ? table_of(child_of(*fsdp, "mixed_precision"), "mixed_precision")
                 : YamlBlock();
    clipping_ = table_of(child_of(child_of(root, "algorithms"), "gradient_clipping"), "gradient_clipping");
  }

  Translation run() {
    refuse_placeholders();
    read_version();
    const YamlEntry* degree = find_entry(tensor_, "tensor_parallel_degree");
    if (degree != nullptr && entry_whole(*degree, 1, "a number of ranks, 1 or more") > 1) {
      throw setting_fault(*degree, "is not possible: only data-parallel ranks are sharded, so it must be 1");
    }
    if (of_host_ == 1) {
      read_sharding_1();
      read_prefetch();
    } else {
      read_sharding_2();
    }
    read_state_dict();
    read_loading();
    if (const YamlEntry* entry = find("activation_checkpointing")) {
      draft_.emit("activation_checkpointing", entry_flag(*entry), entry);
    }
    read_precision();
    read_clipping();
    note_others();
    return draft_.finish();
  }

 private:
  /// A key that Composer reads: under version 2 only those it has.
  const YamlEntry* find(std::string_view key) const {
    if (of_host_ == 2 && !is_among(key, kComposerKeys2)) return nullptr;
    return find_entry(fsdp_, key);
  }

  bool flag(std::string_view key, bool standard) const {
    const YamlEntry* entry = find(key);
    return entry == nullptr ? standard : entry_flag(*entry);
  }

  /// OmegaConf's "${path}" stands for a value that is not known here.
  void refuse_placeholders() const {
    for (const YamlBlock* block : {&fsdp_, &mixed_, &tensor_, &clipping_}) {
      for (const auto& [key, entry] : *block) refuse_placeholder(entry);
    }
    if (const YamlEntry* entry = find_entry(top_, "precision")) refuse_placeholder(*entry);
  }

  static void refuse_placeholder(const YamlEntry& entry) {
    if (entry.text.find("${") == std::string::npos) return;
    throw setting_fault(entry, "stands for another value, which is not looked up: write the value itself");
  }

  void read_version() {
    const auto variable = context_.environment.find("FSDP_VERSION");
    const YamlEntry* reshard = find_entry(fsdp_, "reshard_after_forward");
    const bool asked = context_.version == 2 && reshard != nullptr;
    of_host_ = asked || (variable != context_.environment.end() && variable->second == "2") ? 2 : 1;
    version_ = context_.version.value_or(of_host_);
    if (version_ < of_host_) {
      Source source;
      source.file = draft_.file();
      throw error_at(
          source, "FSDP_VERSION",
          "`FSDP_VERSION=2` in the environment makes this version 2, which cannot be converted to version 1");
    }
    Source source;
    source.file = draft_.file();
    if (of_host_ == 2 && !asked) {
      source = {};
      source.override_text = source.key = "FSDP_VERSION=2";
    }
    draft_.emit("version", version_, source);
    if (version_ == of_host_) return;
    draft_.note("converted from version 1 to 2; what version 1 means by its other keys is kept");
  }

  void read_sharding_1() {
    for (const char* key : {"device_mesh", "_device_mesh"}) {
      const auto mesh = fsdp_.find(key);
      if (mesh == fsdp_.end()) continue;
      throw setting_fault(
          mesh->second,
          "is refused by Composer: use `data_parallel_shard_degree` and `data_parallel_replicate_degree`");
    }
    const YamlEntry* offload = find("cpu_offload");
    if (offload != nullptr && entry_flag(*offload)) throw setting_fault(*offload, "is refused by Composer");
    const std::string ranks = "a number of ranks, 1 or more, or -1 for the rest";
    const YamlEntry* replicate = find("data_parallel_replicate_degree");
    const YamlEntry* shard = find("data_parallel_shard_degree");
    const int64_t copies = replicate == nullptr ? 1 : size_or_rest(*replicate, ranks);
    const int64_t shards = shard == nullptr ? -1 : size_or_rest(*shard, ranks);
    if (copies == -1 && shards == -1) {
      throw setting_fault(*replicate, "contradicts `data_parallel_shard_degree: -1`" +
                                          std::string(shard == nullptr ? ", the default" : "") +
                                          ": only one of the two can be the rest of the ranks");
    }
    const bool by_group = find("process_group") != nullptr;
    for (const YamlEntry* degree : {replicate, shard}) {
      if (degree != nullptr && by_group) draft_.note(*degree, "has no effect beside `process_group`");
    }
    const YamlEntry* entry = find("sharding_strategy");
    const std::string_view written =
        entry == nullptr ? fsdp1::kStrategies[0] : entry_choice(*entry, fsdp1::kStrategies);
    std::string_view name = written;
    if (!by_group) name = fitted(written, replicate != nullptr, copies);
    if (name != written && entry != nullptr) {
      draft_.note(*entry, "runs as " + std::string(name) + " in Composer, because " +
                              (replicate != nullptr ? "`data_parallel_replicate_degree` makes a mesh of two dimensions"
                                                    : "there is no `data_parallel_replicate_degree`"));
    }
    draft_.emit_strategy(fsdp1::canonical_strategy(name), fsdp1::reshards(name), entry);
    if (by_group) return;
    if (replicate != nullptr) draft_.emit("mesh.replicate", copies, replicate);
    if (shard != nullptr) draft_.emit("mesh.shard", shards, shard);
  }

  static int64_t size_or_rest(const YamlEntry& entry, const std::string& allowed) {
    const int64_t size = entry_whole(entry, -1, allowed);
    if (size == 0) throw setting_fault(entry, "must be " + allowed);
    return size;
  }

  /// What Composer makes of a strategy on the mesh that there is. It always makes one.
  static std::string_view fitted(std::string_view name, bool two_dimensions, int64_t copies) {
    if (two_dimensions && copies != 1) {
      if (name == "FULL_SHARD") return "HYBRID_SHARD";
      if (name == "SHARD_GRAD_OP") return "_HYBRID_SHARD_ZERO2";
    }
    if (!two_dimensions) {
      if (name == "HYBRID_SHARD") return "FULL_SHARD";
      if (name == "_HYBRID_SHARD_ZERO2") return "SHARD_GRAD_OP";
    }
    return name;
  }

  void read_sharding_2() {
    const YamlEntry* entry = find("reshard_after_forward");
    const YamlEntry* mesh = find("device_mesh");
    int64_t copies = 1;
    if (mesh != nullptr) {
      const std::optional<std::vector<int64_t>> sizes = entry_sizes(*mesh);
      if (!sizes || sizes->empty() || sizes->size() > 2 || *std::min_element(sizes->begin(), sizes->end()) < 1) {
        throw setting_fault(*mesh, "must be numbers of ranks, [shard] or [replicate, shard]");
      }
      if (sizes->size() == 2) {
        copies = sizes->front();
        draft_.emit("mesh.replicate", copies, mesh);
      }
      draft_.emit("mesh.shard", sizes->back(), mesh);
    }
    Value reshard = true;
    if (entry != nullptr && entry->kind == YamlEntry::Kind::kInt) {
      reshard = entry_whole(*entry, 1, "true, false or a number of ranks, 1 or more");
    } else if (entry != nullptr) {
      if (entry->kind != YamlEntry::Kind::kBool) {
        throw setting_fault(*entry, "must be true, false or a number of ranks, 1 or more");
      }
      reshard = entry->flag;
    }
    const bool keeps = reshard == Value(false);
    draft_.emit_strategy(
        copies > 1 ? (keeps ? "hybrid_shard_zero2" : "hybrid_shard") : (keeps ? "shard_grad_op" : "full_shard"),
        reshard, entry);
  }

  void read_prefetch() {
    if (version_ != 1) return;
    const YamlEntry* backward = find("backward_prefetch");
    const std::string_view word =
        backward == nullptr ? kComposerPrefetches[1] : entry_choice(*backward, kComposerPrefetches);
    if (backward != nullptr && word == "BACKWARD_POST") draft_.note(*backward, std::string(fsdp1::kPostNote));
    draft_.emit("prefetch.backward", word == "NONE" ? 0 : limit("backward_prefetch_limit"), backward);
    const YamlEntry* forward = find("forward_prefetch");
    draft_.emit("prefetch.forward", flag("forward_prefetch", false) ? limit("forward_prefetch_limit") : 0, forward);
  }

  int64_t limit(std::string_view key) const {
    const YamlEntry* entry = find(key);
    return entry == nullptr ? 1 : entry_whole(*entry, 0, "a number of units, 0 or more");
  }

  void read_state_dict() {
    const YamlEntry* entry = find("state_dict_type");
    is_full_ = of_host_ == 1;
    if (entry != nullptr) {
      if (!is_among(entry->text, kComposerStateDicts)) {
        throw setting_fault(*entry,
                            "must be one of " + quoted_list(kComposerStateDicts) +
                                (entry->text == "local" ? ": Composer no longer writes local ones" : ""),
                            nearest_name(entry->text, kComposerStateDicts));
      }
      is_full_ = entry->text == "full";
    }
    draft_.emit("checkpoint.kind", std::string(is_full_ ? "full" : "sharded"), entry);
  }

  void read_loading() {
    const YamlEntry* alone = find("load_monolith_rank0_only");
    const YamlEntry* sync = find("sync_module_states");
    const YamlEntry* device = find_entry(model_, "init_device");
    const bool is_mixed = device != nullptr && device->text == "mixed";
    const bool syncs = is_mixed || flag("sync_module_states", false);
    if (is_mixed)
      draft_.note(*device, "makes LLM Foundry set `sync_module_states`: rank 0 holds the values, and sends them");
    const bool monolith = flag("load_monolith_rank0_only", false);
    if (monolith && !is_full_) draft_.note(*alone, "has no effect without `state_dict_type: full`");
    if (monolith && is_full_ && of_host_ == 1 && !syncs) {
      throw setting_fault(*alone, "needs `sync_module_states: true` beside it");
    }
    const bool broadcasts = syncs || (monolith && is_full_);
    draft_.emit("load.mode", std::string(broadcasts ? "broadcast" : "full"), sync != nullptr ? sync : alone);
  }

  void read_precision() {
    const YamlEntry* entry = find("mixed_precision");
    const YamlEntry* precision = find_entry(top_, "precision");
    if (precision != nullptr && !is_among(precision->text, kComposerPrecisions)) {
      throw setting_fault(*precision, "must be one of " + quoted_list(kComposerPrecisions),
                          nearest_name(precision->text, kComposerPrecisions));
    }
    const YamlEntry* weights = find_entry(model_, "master_weights_dtype");
    const bool is_small = weights != nullptr && is_among(weights->text, kSmallDtypes);
    if (is_small) draft_.note(*weights, "makes LLM Foundry drop the cast to `precision`: weights are 16 bits already");
    if (entry != nullptr && entry->kind == YamlEntry::Kind::kMap) {
      emit_dtypes(is_small);
      return;
    }
    const std::string_view word = entry == nullptr ? kComposerMixed[0] : entry_choice(*entry, kComposerMixed);
    if (word == "FULL" || is_small) return;
    if (precision == nullptr) {
      draft_.note("`precision` is not given: LLM Foundry runs amp_bf16 by default" +
                  std::string(entry == nullptr ? ", which is not taken over" : ""));
      if (entry == nullptr) return;
    }
    const YamlEntry* place = precision == nullptr ? entry : precision;
    const std::string dtype = dtype_of(precision == nullptr ? "amp_bf16" : precision->text, place);
    if (dtype != "float32") emit_param(dtype, place);
    draft_.emit("mixed_precision.reduce", word == "PURE" ? dtype : "float32", entry == nullptr ? place : entry);
  }

  void emit_param(const std::string& dtype, const YamlEntry* place) {
    draft_.emit("mixed_precision.param", dtype, place);
    if (of_host_ == 1) draft_.emit("mixed_precision.cast_forward_inputs", true, place);
  }

  void emit_dtypes(bool is_small) {
    const YamlEntry* param = find_entry(mixed_, "param_dtype");
    const YamlEntry* reduce = find_entry(mixed_, "reduce_dtype");
    if (param != nullptr && !is_small) emit_param(dtype_of(param->text, param), param);
    if (reduce != nullptr) draft_.emit("mixed_precision.reduce", dtype_of(reduce->text, reduce), reduce);
    for (const auto& [key, other] : mixed_) {
      if (key != "param_dtype" && key != "reduce_dtype" && other.kind != YamlEntry::Kind::kNull) {
        draft_.note(other, "has no effect: there is nothing like it here");
      }
    }
  }

  /// Composer's names of dtypes, with or without "amp_".
  std::string dtype_of(std::string_view name, const YamlEntry* entry) {
    if (name.starts_with("amp_")) name.remove_prefix(4);
    if (name == "fp8" || name == "float8" || name == "torch.float8") {
      draft_.note(*entry, "is taken as bfloat16, as Composer does");
      return "bfloat16";
    }
    const std::optional<std::string> dtype = name == "amp" ? "float16" : fsdp1::canonical_dtype(name);
    if (!dtype) throw setting_fault(*entry, R"(must be one of "float32", "float16", "bfloat16")");
    return *dtype;
  }

  void read_clipping() {
    const YamlEntry* type = find_entry(clipping_, "clipping_type");
    const YamlEntry* threshold = find_entry(clipping_, "clipping_threshold");
    if (type == nullptr) return;
    if (type->text != "norm") {
      draft_.note(*type, "cannot be expressed: gradients are clipped by their norm only");
      return;
    }
    if (threshold == nullptr) throw error_at(type->source, "clipping_threshold", "`clipping_threshold` is missing");
    const double limit = entry_number(*threshold);
    if (!(limit > 0)) throw setting_fault(*threshold, "must be a number above 0");
    draft_.emit("gradient.clip_norm", limit, threshold);
  }

  void note_others() {
    int64_t unread = 0;
    for (const auto& [key, entry] : fsdp_) {
      if (entry.kind == YamlEntry::Kind::kNull) continue;
      if (version_ == 2 && !is_among(key, kComposerKeys2)) {
        draft_.obsolete(entry);
      } else if (is_among(key, kComposerNoted) && is_truthy(entry)) {
        draft_.note(entry, "cannot be expressed");
      } else if (of_host_ == 1 && key == "reshard_after_forward") {
        draft_.note(entry, "has no effect: Composer reads it under FSDP_VERSION=2 only");
      } else if (of_host_ == 1 && !is_among(key, kComposerKeys) && ++unread <= kMostNoted) {
        const std::string nearest = nearest_name(key, kComposerKeys);
        draft_.note(entry, "has no effect: Composer does not read this key" +
                               (nearest.empty() ? "" : "; did you mean `" + nearest + "`?"));
      }
    }
    if (unread > kMostNoted) draft_.note(std::to_string(unread) + " keys of `fsdp_config` are read by nobody");
  }

  const TranslationContext& context_;
  TranslationDraft draft_;
  YamlBlock top_;
  YamlBlock model_;
  YamlBlock fsdp_;
  YamlBlock tensor_;
  YamlBlock mixed_;  // of fsdp_config
  YamlBlock clipping_;
  int64_t of_host_ = 1;  // the version that Composer runs
  int64_t version_ = 1;  // of the result
  bool is_full_ = true;
};

}  // namespace

Translation translate_composer(std::string_view text, const std::string& file, const TranslationContext& context) {
  return ComposerTranslator(text, file, context).run();
}

}  // namespace fsdp2
