// A block of DeepSpeed's file, checked as pydantic checks it: no unknown fields, the right types, "auto" for absent.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/deepspeed_fields.hpp"
#include "adapters/setting.hpp"

namespace fsdp2::deepspeed {

/// What stands for absent in blocks.
bool is_auto(const Setting& setting);

/// A whole number as pydantic takes it: 3, 3.0, "3" and true for 1.
std::optional<int64_t> pydantic_int(const Setting& setting);
std::optional<bool> pydantic_bool(const Setting& setting);

class Block {
 public:
  /// `path` is what messages call it, "zero_optimization.offload_param".
  Block(const Setting& map, const std::string& path, std::span<const Field> fields);

  /// Null where it is absent or "auto". A field with two names is found by the one without "stage3_".
  [[nodiscard]] const Setting* find(std::string_view field) const { return find_entry(settings_, field); }
  /// Present, whatever it holds, null too.
  [[nodiscard]] const Setting* present(std::string_view field) const;
  [[nodiscard]] bool is_on(std::string_view field, bool standard = false) const;
  [[nodiscard]] int64_t whole(std::string_view field, int64_t standard) const;

  struct Remark {
    Setting setting;
    std::string sentence;
  };
  [[nodiscard]] const std::vector<Remark>& remarks() const { return remarks_; }

 private:
  void take(const Setting& written, const Field& field);

  SettingsTable settings_;
  std::vector<Remark> remarks_;
};

/// The same setting, called by its path.
Setting at_path(const Setting& setting, const std::string& path);

}  // namespace fsdp2::deepspeed
