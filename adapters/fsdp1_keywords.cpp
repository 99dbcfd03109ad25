#include "adapters/fsdp1_keywords.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/entry_reading.hpp"
#include "adapters/fsdp1_names.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2::fsdp1 {
namespace {

void emit_prefetch(const YamlBlock& keywords, TranslationDraft& draft) {
  const auto written = keywords.find("backward_prefetch");
  const YamlEntry* backward = written == keywords.end() ? nullptr : &written->second;
  int64_t depth = 1;
  if (backward != nullptr && backward->kind == YamlEntry::Kind::kNull) {
    depth = 0;  // None, which is not the default
  } else if (backward != nullptr && entry_choice(*backward, kBackwardPrefetches) == "BACKWARD_POST") {
    draft.note(*backward, std::string(kPostNote));
  }
  draft.emit("prefetch.backward", depth, backward);
  const YamlEntry* forward = find_entry(keywords, "forward_prefetch");
  const bool ahead = forward != nullptr && entry_flag(*forward);
  draft.emit("prefetch.forward", int64_t{ahead ? 1 : 0}, forward);
}

void emit_ignored(const YamlBlock& keywords, TranslationDraft& draft) {
  const YamlEntry* modules = find_entry(keywords, "ignored_modules");
  const YamlEntry* states = find_entry(keywords, "ignored_states");
  if (modules != nullptr && states != nullptr) {
    throw setting_fault(*states, "excludes `ignored_modules`: PyTorch takes one of the two");
  }
  const YamlEntry* entry = modules != nullptr ? modules : states;
  if (entry == nullptr) return;
  std::vector<std::string> names = entry->list;
  if (entry->kind == YamlEntry::Kind::kText) names = {entry->text};
  for (std::string& name : names) {
    if (name.empty()) throw setting_fault(*entry, "must be a list of module names");
    name = exactly(name);
  }
  if (names.empty() && entry->kind != YamlEntry::Kind::kList) {
    throw setting_fault(*entry, "must be a list of module names");
  }
  draft.emit("ignored_modules", names, entry);
}

template <typename Keys>
void list_obsolete(const YamlBlock& keywords, const Keys& keys, TranslationDraft& draft) {
  for (const std::string_view key : keys) {
    if (const YamlEntry* entry = find_entry(keywords, key)) draft.obsolete(*entry);
  }
}

std::string dtype_of(const YamlEntry& entry) {
  const std::optional<std::string> dtype = canonical_dtype(entry.text);
  if (!dtype) throw setting_fault(entry, R"(must be one of "float32", "float16", "bfloat16")");
  return *dtype;
}

bool flag_or(const YamlBlock& keywords, std::string_view key, bool standard) {
  const YamlEntry* entry = find_entry(keywords, key);
  return entry == nullptr ? standard : entry_flag(*entry);
}

}  // namespace

void translate_keywords(const YamlBlock& keywords, int64_t version, TranslationDraft& draft) {
  if (version == 1) {
    emit_prefetch(keywords, draft);
  } else {
    list_obsolete(keywords, kObsolete, draft);
  }
  const YamlEntry* sync = find_entry(keywords, "sync_module_states");
  const bool broadcasts = sync != nullptr && entry_flag(*sync);
  draft.emit("load.mode", std::string(broadcasts ? "broadcast" : "full"), sync);
  emit_ignored(keywords, draft);
}

void translate_precision(const YamlBlock& keywords, int64_t version, TranslationDraft& draft) {
  for (const auto& [key, entry] : keywords) {
    if (std::find(kPrecisionKeywords.begin(), kPrecisionKeywords.end(), key) != kPrecisionKeywords.end()) continue;
    throw error_at(entry.key_source, key, "PyTorch's MixedPrecision knows no `" + key + "`",
                   nearest_name(key, kPrecisionKeywords));
  }
  const YamlEntry* param = find_entry(keywords, "param_dtype");
  const YamlEntry* reduce = find_entry(keywords, "reduce_dtype");
  if (param != nullptr) draft.emit("mixed_precision.param", dtype_of(*param), param);
  if (reduce == nullptr) reduce = param;  // what PyTorch does
  if (reduce != nullptr) draft.emit("mixed_precision.reduce", dtype_of(*reduce), reduce);
  const bool casts = flag_or(keywords, "cast_forward_inputs", false);
  const bool casts_at_root = flag_or(keywords, "cast_root_forward_inputs", true);
  if (param != nullptr) {
    const YamlEntry* written = find_entry(keywords, "cast_forward_inputs");
    draft.emit("mixed_precision.cast_forward_inputs", casts || casts_at_root, written == nullptr ? param : written);
  }
  for (const std::string_view key : kObsoletePrecision) {
    const YamlEntry* entry = find_entry(keywords, key);
    if (entry == nullptr) continue;
    if (version == 1) {
      draft.note(*entry, "has no effect: there is nothing like it here");
    } else {
      draft.obsolete(*entry);
    }
  }
}

}  // namespace fsdp2::fsdp1
