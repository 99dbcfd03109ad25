#include "adapters/translation_draft.hpp"

#include <algorithm>

namespace fsdp2 {

void TranslationDraft::emit(const std::string& key, Value value) {
  Source source;
  source.file = file_;
  emit(key, std::move(value), source);
}

void TranslationDraft::emit(const std::string& key, Value value, const Source& source) {
  Given given{std::move(value), source};
  given.source.translated = true;
  result_.given.insert_or_assign(key, std::move(given));
}

void TranslationDraft::emit(const std::string& key, Value value, const YamlEntry* entry) {
  if (entry == nullptr) {
    emit(key, std::move(value));
  } else {
    emit(key, std::move(value), entry->source);
  }
}

void TranslationDraft::note(const Source& source, const std::string& written, const std::string& sentence) {
  result_.notes.push_back(place(source) + "`" + written + "` " + sentence);
}

void TranslationDraft::note(const YamlEntry& entry, const std::string& sentence) {
  note(entry.source, as_written(entry), sentence);
}

void TranslationDraft::note(const std::string& sentence) {
  result_.notes.push_back(file_ + ": " + sentence);
}

void TranslationDraft::obsolete(const YamlEntry& entry) {
  obsolete_.push_back(entry.key_source);
}

Translation TranslationDraft::finish() {
  std::stable_sort(obsolete_.begin(), obsolete_.end(), [](const Source& a, const Source& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  for (const Source& source : obsolete_) {
    result_.obsolete.push_back(source.key);
    result_.warning += result_.warning.empty() ? file_ + ": obsolete under version 2, to be removed: " : ", ";
    result_.warning += "`" + source.key + "` (line " + std::to_string(source.line) + ")";
  }
  return std::move(result_);
}

}  // namespace fsdp2
