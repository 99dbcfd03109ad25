#include "adapters/translator.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "registry/nearest_name.hpp"

namespace fsdp2 {

void Translator::emit(const std::string& key, Value value, const Setting* entry) {
  Source source;
  source.file = file_;
  source.translated = true;
  if (entry != nullptr) source = entry->source;
  result_.given.insert_or_assign(key, Given{std::move(value), std::move(source)});
}

void Translator::note(const Setting& entry, const std::string& sentence) {
  result_.notes.push_back(place(entry.source) + "`" + as_written(entry) + "` " + sentence);
}

void Translator::warn_obsolete(std::vector<const Setting*> entries) {
  std::erase(entries, nullptr);
  std::stable_sort(entries.begin(), entries.end(), [](const Setting* a, const Setting* b) {
    return std::tie(a->key_source.line, a->key_source.column) < std::tie(b->key_source.line, b->key_source.column);
  });
  for (const Setting* entry : entries) {
    const std::string& key = entry->source.key;
    result_.obsolete.push_back(key);
    result_.warning += result_.warning.empty() ? file_ + ": obsolete under version 2, to be removed: " : ", ";
    result_.warning += "`" + key + "`";
    if (entry->key_source.line > 0) result_.warning += " (line " + std::to_string(entry->key_source.line) + ")";
  }
}

void Translator::emit_sharding(bool reshards, bool hybrid, const Setting* entry) {
  const std::string keeps = hybrid ? "hybrid_shard_zero2" : "shard_grad_op";
  const std::string shards = hybrid ? "hybrid_shard" : "full_shard";
  emit("strategy", reshards ? shards : keeps, entry);
  emit("reshard_after_forward", reshards, entry);
}

std::string unread_by(const std::string& host, std::string_view key, std::span<const std::string_view> known) {
  const std::string nearest = nearest_name(key, known);
  return "has no effect: " + host + " does not read this key" +
         (nearest.empty() ? "" : "; did you mean `" + nearest + "`?");
}

bool truth_of(const Setting& setting) {
  const std::optional<bool> value = as_truth(setting);
  if (value) return *value;
  throw setting_fault(setting, "must be true or false (y, yes, t, true, on, 1 or n, no, f, false, off, 0)");
}

std::string_view choice_of(const Setting& setting, std::span<const std::string_view> names) {
  const std::string wanted = upper_case(setting.text);
  const std::optional<int64_t> number = as_int(setting);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == wanted || number == static_cast<int64_t>(i) + 1) return names[i];
  }
  throw setting_fault(setting, "must be one of " + quoted_list(names), nearest_name(wanted, names));
}

std::string dtype_of(std::string_view written) {
  if (written.starts_with("torch.")) written.remove_prefix(6);
  for (const auto& [name, shorter] : {std::pair("float32", "fp32"), {"float16", "fp16"}, {"bfloat16", "bf16"}}) {
    if (written == name || written == shorter) return name;
  }
  return {};
}

}  // namespace fsdp2
