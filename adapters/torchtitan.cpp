// torchtitan: its TOML file in all the forms it had until February 2026, and the flags `--section.key` that outlived
// it. The place of a key moved between sections; its meaning stayed.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "adapters/adapters.hpp"
#include "adapters/torchtitan_entries.hpp"
#include "adapters/translation_draft.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::array<std::string_view, 3> kTitanSections{"parallelism", "training", "experimental"};
constexpr std::array<std::string_view, 5> kTitanDataParallel{"data_parallel_replicate_degree",
                                                             "data_parallel_shard_degree", "data_parallel_degree",
                                                             "data_parallel_type", "fsdp_reshard_after_forward"};
constexpr std::array<std::string_view, 5> kTitanOtherDegrees{"tensor_parallel_degree", "pipeline_parallel_degree",
                                                             "context_parallel_degree", "expert_parallel_degree",
                                                             "expert_tensor_parallel_degree"};
constexpr std::array<std::string_view, 3> kTitanReshard{"default", "always", "never"};
constexpr std::array<std::string_view, 2> kTitanTypes{"fsdp", "ddp"};
constexpr std::array<std::string_view, 2> kTitanParam{"bfloat16", "float32"};
constexpr std::array<std::string_view, 1> kTitanReduce{"float32"};
constexpr std::array<std::string_view, 4> kTitanCheckpointing{"none", "full", "selective", "memory_budget"};
/// Speed-ups of its own, wherever they stand.
constexpr std::array<std::string_view, 3> kTitanExtras{"enable_fsdp_symm_mem", "enable_fsdp_float8_all_gather",
                                                       "precompute_float8_dynamic_scale_for_fsdp"};

Error titan_fault(const TitanEntry& entry, const std::string& sentence, const std::string& nearest = {}) {
  return error_at(entry.source, entry.source.key, "`" + entry.written + "` " + sentence, nearest);
}

std::string_view titan_word(const TitanEntry& entry, Words words) {
  const std::string* text = entry.value ? std::get_if<std::string>(&*entry.value) : nullptr;
  if (text != nullptr) {
    const auto found = std::find(words.begin(), words.end(), *text);
    if (found != words.end()) return *found;
  }
  throw titan_fault(entry, "must be one of " + quoted_list(words), text == nullptr ? "" : nearest_name(*text, words));
}

bool titan_flag(const TitanEntry& entry) {
  const bool* flag = entry.value ? std::get_if<bool>(&*entry.value) : nullptr;
  if (flag == nullptr) throw titan_fault(entry, "must be true or false");
  return *flag;
}

int64_t titan_degree(const TitanEntry& entry, bool may_be_rest) {
  const int64_t* degree = entry.value ? std::get_if<int64_t>(&*entry.value) : nullptr;
  if (degree != nullptr && (*degree >= 1 || (may_be_rest && *degree == -1))) return *degree;
  throw titan_fault(entry,
                    std::string("must be a number of ranks, 1 or more") + (may_be_rest ? ", or -1 for the rest" : ""));
}

class TitanTranslator {
 public:
  TitanTranslator(TitanEntries entries, const std::string& file, const RankCounts& ranks)
      : entries_(std::move(entries)), ranks_(ranks.num_processes), draft_(file) {}

  Translation run() {
    check_keys();
    draft_.emit("version", int64_t{2});
    refuse_other_degrees();
    read_mesh();
    read_strategy();
    read_precision();
    read_training();
    read_checkpointing();
    note_extras();
    return draft_.finish();
  }

 private:
  const TitanEntry* find(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }

  /// The key in whichever section the era had it.
  const TitanEntry* find_anywhere(std::string_view key) const {
    const TitanEntry* found = nullptr;
    for (const std::string_view section : kTitanSections) {
      const TitanEntry* entry = find(std::string(section) + "." + std::string(key));
      if (entry == nullptr) continue;
      const bool wins = found == nullptr || (is_override(*entry) && !is_override(*found));
      const bool loses = found != nullptr && !is_override(*entry) && is_override(*found);
      if (!wins && !loses && found->value != entry->value) {
        throw titan_fault(*entry, "contradicts `" + found->written + "`: the same key in another section");
      }
      if (wins) found = entry;
    }
    return found;
  }

  static bool is_override(const TitanEntry& entry) { return !entry.source.override_text.empty(); }

  template <typename T>
  void emit(const std::string& key, T value, const TitanEntry* entry) {
    if (entry == nullptr) {
      draft_.emit(key, Value(std::move(value)));
    } else {
      draft_.emit(key, Value(std::move(value)), entry->source);
    }
  }

  void note(const TitanEntry& entry, const std::string& sentence) {
    draft_.note(entry.source, entry.written, sentence);
  }

  /// It refuses unknown keys in all sections. Only those that would change how data is sharded are looked at here.
  void check_keys() const {
    for (const auto& [key, entry] : entries_) {
      const size_t dot = key.find('.');
      const std::string section = key.substr(0, dot);
      if (std::find(kTitanSections.begin(), kTitanSections.end(), section) == kTitanSections.end()) continue;
      if (dot == std::string::npos) {
        throw error_at(entry.key_source, key, "`" + key + "` must be a table, [" + key + "]");
      }
      const std::string name = key.substr(dot + 1);
      if (!name.starts_with("fsdp_") && !name.starts_with("data_parallel_")) continue;
      if (std::find(kTitanDataParallel.begin(), kTitanDataParallel.end(), name) != kTitanDataParallel.end()) continue;
      throw error_at(entry.key_source, key, "torchtitan knows no key `" + key + "`",
                     nearest_name(name, kTitanDataParallel));
    }
  }

  void refuse_other_degrees() const {
    for (const std::string_view key : kTitanOtherDegrees) {
      const TitanEntry* entry = find_anywhere(key);
      if (entry == nullptr || titan_degree(*entry, false) == 1) continue;
      throw titan_fault(*entry, "is not possible: only data-parallel ranks are sharded, so it must be 1");
    }
  }

  void read_mesh() {
    const TitanEntry* replicate = find_anywhere("data_parallel_replicate_degree");
    const TitanEntry* shard = find_anywhere("data_parallel_shard_degree");
    const TitanEntry* degree = find_anywhere("data_parallel_degree");
    const TitanEntry* type = find_anywhere("data_parallel_type");
    if (replicate != nullptr) replicate_ = titan_degree(*replicate, false);
    if (shard != nullptr) shard_ = titan_degree(*shard, true);
    if (degree != nullptr || type != nullptr) {
      const TitanEntry& old = degree != nullptr ? *degree : *type;
      if (replicate != nullptr || shard != nullptr) {
        throw titan_fault(
            old, "contradicts `" + (shard != nullptr ? shard : replicate)->written + "`, which took its place");
      }
      const int64_t size = degree == nullptr ? -1 : titan_degree(*degree, true);
      const bool replicates = type != nullptr && titan_word(*type, kTitanTypes) == "ddp";
      (replicates ? replicate_ : shard_) = size;
      (replicates ? replicate : shard) = &old;
      if (replicates) {
        shard_ = 1;
        shard = type;
      }
    }
    check_ranks(replicate, shard);
    emit("mesh.replicate", replicate_, replicate);
    emit("mesh.shard", shard_, shard);
    mesh_entry_ = shard;
  }

  /// Of the degrees, all others are 1.
  void check_ranks(const TitanEntry* replicate, const TitanEntry* shard) const {
    if (!ranks_) return;
    const int64_t copies = replicate_ == -1 ? 1 : replicate_;
    const int64_t shards = shard_ == -1 ? 1 : shard_;
    const bool has_rest = replicate_ == -1 || shard_ == -1;
    const bool fits = copies <= *ranks_ && *ranks_ % copies == 0 &&
                      (has_rest ? *ranks_ / copies % shards == 0 : *ranks_ / copies == shards);
    if (fits) return;
    const TitanEntry* at = shard != nullptr && shard_ != -1 ? shard : replicate;
    throw titan_fault(*at,
                      "does not fit " + std::to_string(*ranks_) +
                          " ranks: `data_parallel_replicate_degree` x `data_parallel_shard_degree` must be as many");
  }

  /// -1 stands for the rest, which may be one.
  bool shards_nothing() const { return shard_ == 1 || (shard_ == -1 && ranks_ && *ranks_ == replicate_); }

  void read_strategy() {
    const TitanEntry* entry = find_anywhere("fsdp_reshard_after_forward");
    const std::string_view word = entry == nullptr ? kTitanReshard[0] : titan_word(*entry, kTitanReshard);
    if (shards_nothing()) {
      if (entry != nullptr && word != "default") note(*entry, "has no effect: nothing is sharded");
      emit("strategy", std::string("no_shard"), mesh_entry_);
      emit("reshard_after_forward", false, mesh_entry_);
      return;
    }
    const bool keeps = word == "never";
    const std::string name =
        replicate_ > 1 ? (keeps ? "hybrid_shard_zero2" : "hybrid_shard") : (keeps ? "shard_grad_op" : "full_shard");
    emit("strategy", name, entry);
    if (word == "default") {
      emit("reshard_after_forward", std::string("auto"), entry);
    } else {
      emit("reshard_after_forward", !keeps, entry);
    }
  }

  void read_precision() {
    const TitanEntry* param = find_anywhere("mixed_precision_param");
    const TitanEntry* reduce = find_anywhere("mixed_precision_reduce");
    const std::string_view dtype = param == nullptr ? kTitanParam[0] : titan_word(*param, kTitanParam);
    emit("mixed_precision.param", std::string(dtype), param);
    if (reduce != nullptr) titan_word(*reduce, kTitanReduce);
    emit("mixed_precision.reduce", std::string(kTitanReduce[0]), reduce);
    if (shards_nothing() && dtype == "bfloat16") {
      draft_.note("`mixed_precision_param` bfloat16 without sharding is autocast in torchtitan; units are cast here");
    }
    const TitanEntry* whole = find("training.dtype");
    if (whole != nullptr && titan_word(*whole, kTitanParam) == "bfloat16") {
      note(*whole, "cannot be expressed: parameters and optimizer state keep the dtype of the model");
    }
  }

  void read_training() {
    const TitanEntry* offload = find_anywhere("enable_cpu_offload");
    if (offload != nullptr && titan_flag(*offload)) {
      emit("offload.params", true, offload);
      emit("offload.pin_memory", true, offload);
    }
    const TitanEntry* norm = find_anywhere("max_norm");
    double limit = 1.0;
    if (norm != nullptr) {
      const Value value = norm->value.value_or(false);
      const int64_t* whole = std::get_if<int64_t>(&value);
      const double* real = std::get_if<double>(&value);
      limit = whole != nullptr ? static_cast<double>(*whole) : real != nullptr ? *real : 0;
      if (std::isnan(limit) || limit <= 0) throw titan_fault(*norm, "must be a number above 0");
    }
    if (std::isfinite(limit)) emit("gradient.clip_norm", limit, norm);
  }

  void read_checkpointing() {
    const TitanEntry* mode = find("activation_checkpoint.mode");
    const std::string_view word = mode == nullptr ? "selective" : titan_word(*mode, kTitanCheckpointing);
    emit("activation_checkpointing", word != "none", mode);
    const std::string sentence = "is taken as true: what every unit computes is computed again in backward";
    if (mode != nullptr && word != "none" && word != "full") note(*mode, sentence);
    if (mode == nullptr) draft_.note("`activation_checkpoint.mode` is \"selective\" by default, which " + sentence);
    draft_.emit("checkpoint.kind", std::string("sharded"));
    const TitanEntry* hugging_face = find("checkpoint.last_save_in_hf");
    if (hugging_face != nullptr && titan_flag(*hugging_face)) {
      note(*hugging_face, "cannot be expressed: the last checkpoint has the form of the others");
    }
  }

  void note_extras() {
    for (const auto& [key, entry] : entries_) {
      const std::string name = key.substr(key.rfind('.') + 1);
      if (std::find(kTitanExtras.begin(), kTitanExtras.end(), name) == kTitanExtras.end()) continue;
      if (titan_flag(entry)) note(entry, "has no effect: there is nothing like it here");
    }
    for (const char* key : {"module", "config"}) {
      if (const TitanEntry* entry = find(key); entry != nullptr && entry->written.starts_with("--")) {
        note(*entry, "names a function in Python, which is not read: what no flag says is at its default");
      }
    }
  }

  TitanEntries entries_;
  std::optional<int64_t> ranks_;
  TranslationDraft draft_;
  int64_t replicate_ = 1;
  int64_t shard_ = -1;
  const TitanEntry* mesh_entry_ = nullptr;
};

}  // namespace

Translation translate_torchtitan(std::string_view text, const std::string& file, const TranslationContext& context) {
  if (context.version.value_or(2) != 2) {
    Source source;
    source.file = file;
    throw error_at(source, "version", "torchtitan knows only version 2, which cannot be converted to version 1");
  }
  const bool is_flags = holds_titan_flags(text);
  TitanEntries entries = is_flags ? read_titan_flags(text, file) : read_titan_toml(text, file);
  const auto elsewhere = entries.find("job.config_file");
  if (is_flags && elsewhere != entries.end()) {
    throw error_at(elsewhere->second.source, "job.config_file",
                   "`" + elsewhere->second.written + "` names a file, which is not read from here: name that one in " +
                       "`config`, and write what the other flags say as keys of [fsdp]");
  }
  apply_titan_flags(entries, context.flags);
  return TitanTranslator(std::move(entries), file, context.ranks).run();
}

}  // namespace fsdp2
