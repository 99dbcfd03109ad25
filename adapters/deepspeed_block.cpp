#include "adapters/deepspeed_block.hpp"

#include <algorithm>
#include <cmath>

#include "registry/nearest_name.hpp"

namespace fsdp2::deepspeed {
namespace {

using Kind = Setting::Kind;

constexpr std::string_view kStage3 = "stage3_";

const Field* field_of(std::string_view written, std::span<const Field> fields) {
  for (const Field& field : fields) {
    if (written == field.name) return &field;
    if (field.has_stage3_name && written.starts_with(kStage3) && written.substr(kStage3.size()) == field.name) {
      return &field;
    }
  }
  return nullptr;
}

std::string nearest_field(std::string_view written, std::span<const Field> fields) {
  std::vector<std::string> names;
  for (const Field& field : fields) {
    names.emplace_back(field.name);
    if (field.has_stage3_name) names.push_back(std::string(kStage3) + std::string(field.name));
  }
  return nearest_name(written, names);
}

void check_type(const Setting& setting, FieldType type) {
  const bool null = setting.kind == Kind::kNull;
  if (type == FieldType::kAny || (type == FieldType::kMaybeBool && null)) return;
  if (type == FieldType::kBool || type == FieldType::kMaybeBool) {
    if (!pydantic_bool(setting)) throw setting_fault(setting, "must be true or false");
    return;
  }
  if (type == FieldType::kShare) {
    const std::optional<double> share = as_number(setting);
    if (!share || *share < 0 || *share > 1) throw setting_fault(setting, "must be a number from 0 to 1");
    return;
  }
  // A whole number of more digits than fit is still one.
  const bool huge = setting.kind == Kind::kReal && std::abs(setting.real) >= 0x1p63;
  const std::optional<int64_t> whole = pydantic_int(setting);
  if (!whole && !huge) throw setting_fault(setting, "must be a whole number");
  if (type == FieldType::kCount && (huge ? setting.real < 0 : *whole < 0)) {
    throw setting_fault(setting, "must be a whole number, 0 or more");
  }
}

}  // namespace

bool is_auto(const Setting& setting) {
  return setting.kind == Kind::kText && setting.text == "auto";
}

std::optional<int64_t> pydantic_int(const Setting& setting) {
  if (setting.kind == Kind::kBool) return setting.flag ? 1 : 0;
  if (setting.kind == Kind::kReal && std::trunc(setting.real) == setting.real && std::abs(setting.real) < 0x1p63) {
    return static_cast<int64_t>(setting.real);
  }
  return as_int(setting);
}

std::optional<bool> pydantic_bool(const Setting& setting) {
  if (setting.kind == Kind::kReal) {
    if (setting.real == 0 || setting.real == 1) return setting.real == 1;
    return std::nullopt;
  }
  return as_truth(setting);
}

Setting at_path(const Setting& setting, const std::string& path) {
  Setting called = setting;
  called.source.key = called.key_source.key = path + "." + setting.source.key;
  return called;
}

Block::Block(const Setting& map, const std::string& path, std::span<const Field> fields) {
  if (map.kind != Kind::kMap) throw error_at(map.source, path, "`" + path + "` must be a map");
  for (const Setting& member : map.members) {
    const Setting written = member.source.key == member.key ? at_path(member, path) : member;
    const Field* field = field_of(member.key, fields);
    if (field != nullptr) {
      take(written, *field);
      continue;
    }
    const std::string nearest = nearest_field(member.key, fields);
    if (!is_auto(written)) {
      throw error_at(written.key_source, written.source.key, "DeepSpeed knows no key `" + written.source.key + "`",
                     nearest);
    }
    // DeepSpeed drops what is "auto" before it looks at names.
    remarks_.push_back({written, "has no effect: DeepSpeed knows no such key" +
                                     (nearest.empty() ? "" : "; did you mean `" + nearest + "`?")});
  }
}

void Block::take(const Setting& written, const Field& field) {
  if (is_auto(written)) {
    if (field.use == Use::kTranslated) {
      remarks_.push_back({written, "is filled in by the host later: it is not translated, and counts as absent"});
    }
    return;
  }
  check_type(written, field.type);
  const auto [other, is_new] = settings_.emplace(field.name, written);
  if (!is_new) {
    throw error_at(written.key_source, written.source.key,
                   "`" + written.source.key + "` and `" + other->second.source.key + "` are the same");
  }
  const bool on = field.type == FieldType::kBool ? is_on(field.name) : written.kind != Kind::kNull;
  if (field.use == Use::kNoted && on) remarks_.push_back({written, "cannot be expressed here"});
}

const Setting* Block::present(std::string_view field) const {
  const auto found = settings_.find(field);
  return found == settings_.end() ? nullptr : &found->second;
}

bool Block::is_on(std::string_view field, bool standard) const {
  const Setting* setting = find(field);
  return setting == nullptr ? standard : pydantic_bool(*setting).value_or(false);
}

int64_t Block::whole(std::string_view field, int64_t standard) const {
  const Setting* setting = find(field);
  if (setting == nullptr) return standard;
  const std::optional<int64_t> value = pydantic_int(*setting);
  if (!value) throw setting_fault(*setting, "is too large");
  return *value;
}

}  // namespace fsdp2::deepspeed
