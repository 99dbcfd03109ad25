// A translation while an adapter writes it: canonical keys with their places, notes, and what goes into the one
// warning.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapter.hpp"
#include "adapters/yaml_block.hpp"

namespace fsdp2 {

class TranslationDraft {
 public:
  explicit TranslationDraft(std::string file) : file_(std::move(file)) {}

  /// Without a place, or with a null entry, the value is the host's default.
  void emit(const std::string& key, Value value);
  void emit(const std::string& key, Value value, const Source& source);
  void emit(const std::string& key, Value value, const YamlEntry* entry);

  /// The two go together, so an adapter gives both.
  template <typename... Place>
  void emit_strategy(const std::string& name, const Value& reshard, const Place&... place) {
    emit("strategy", name, place...);
    emit("reshard_after_forward", reshard, place...);
  }

  /// A remark that names a key as it is written.
  void note(const Source& source, const std::string& written, const std::string& sentence);
  void note(const YamlEntry& entry, const std::string& sentence);
  /// One that has its place already.
  void remark(const std::string& text) { result_.notes.push_back(text); }
  /// One on the file.
  void note(const std::string& sentence);

  /// A key without a use under version 2, for the one warning.
  void obsolete(const YamlEntry& entry);

  bool has(std::string_view key) const { return result_.given.contains(key); }
  const std::string& file() const { return file_; }

  /// With the keys of the warning in the order of the file.
  Translation finish();

 private:
  std::string file_;
  Translation result_;
  std::vector<Source> obsolete_;
};

}  // namespace fsdp2
