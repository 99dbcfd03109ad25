#include "adapters/entry_reading.hpp"

#include <charconv>

#include "registry/nearest_name.hpp"

namespace fsdp2 {

const Setting& child_of(const Setting& map, std::string_view key) {
  static const Setting null;
  const Setting* member = find_member(map, key);
  return member == nullptr ? null : *member;
}

std::string_view entry_choice(const YamlEntry& entry, std::span<const std::string_view> names) {
  const std::string wanted = upper_case(last_name(entry.text));
  for (const std::string_view name : names) {
    if (upper_case(name) == wanted) return name;
  }
  throw setting_fault(entry, "must be one of " + quoted_list(names), nearest_name(wanted, names));
}

bool entry_flag(const YamlEntry& entry) {
  if (entry.kind != YamlEntry::Kind::kBool) throw setting_fault(entry, "must be true or false");
  return entry.flag;
}

int64_t entry_whole(const YamlEntry& entry, int64_t least, const std::string& allowed) {
  const std::optional<int64_t> value = as_int(entry);
  if (!value || *value < least) throw setting_fault(entry, "must be " + allowed);
  return *value;
}

double entry_number(const YamlEntry& entry) {
  if (entry.kind == YamlEntry::Kind::kReal) return entry.real;
  const bool may_be = entry.kind == YamlEntry::Kind::kInt || entry.kind == YamlEntry::Kind::kText;
  const std::optional<double> value = may_be ? number_in(entry.text) : std::nullopt;
  if (!value) throw setting_fault(entry, "must be a number");
  return *value;
}

std::optional<std::vector<int64_t>> entry_sizes(const YamlEntry& entry) {
  if (entry.kind != YamlEntry::Kind::kList) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const std::string& text : entry.list) {
    YamlEntry element;
    element.kind = YamlEntry::Kind::kText;
    element.text = text;
    const std::optional<int64_t> size = as_int(element);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

std::optional<double> number_in(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc{} || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string last_name(std::string_view dotted) {
  return std::string(dotted.substr(dotted.rfind('.') + 1));
}

}  // namespace fsdp2
