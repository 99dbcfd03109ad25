// What adapters that read settings have in common: they gather canonical keys, notes and the one warning.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/adapter.hpp"
#include "adapters/setting.hpp"

namespace fsdp2 {

class Translator {
 protected:
  /// `file` stands in messages.
  explicit Translator(std::string file) : file_(std::move(file)) {}

  /// Without an entry the value is the host's default.
  void emit(const std::string& key, Value value, const Setting* entry = nullptr);

  void note(const Setting& entry, const std::string& sentence);

  /// All of them in one warning, in the order of the file. Null ones are passed over.
  void warn_obsolete(std::vector<const Setting*> entries);

  /// Both keys, which always go together. `hybrid`: over a mesh of two dimensions.
  void emit_sharding(bool reshards, bool hybrid, const Setting* entry);

  std::string file_;
  Translation result_;
};

/// "..., did you mean" for keys that a host takes and never reads.
std::string unread_by(const std::string& host, std::string_view key, std::span<const std::string_view> known);

/// A truth word (as_truth), or an error.
bool truth_of(const Setting& setting);

/// One of `names` in any case, or its number counted from 1; or an error.
std::string_view choice_of(const Setting& setting, std::span<const std::string_view> names);

/// "float16" for "fp16", "float16" or "torch.float16", and likewise the other two; "" for any other.
std::string dtype_of(std::string_view written);

}  // namespace fsdp2
