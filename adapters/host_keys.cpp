#include "adapters/host_keys.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <variant>

#include "registry/host_text.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2 {
namespace {

void type_value(Setting& setting, const std::string& written) {
  setting.kind = Setting::Kind::kText;
  setting.text = written;
  if (written == "None" || written == "null") {
    setting.kind = Setting::Kind::kNull;
    return;
  }
  const std::string toml = written == "True" ? "true" : written == "False" ? "false" : written;
  const std::optional<Value> value = read_value(toml);
  if (!value) return;
  if (const auto* flag = std::get_if<bool>(&*value)) {
    setting.kind = Setting::Kind::kBool;
    setting.flag = *flag;
    setting.text = *flag ? "True" : "False";
  } else if (const auto* whole = std::get_if<int64_t>(&*value)) {
    setting.kind = Setting::Kind::kInt;
    setting.whole = *whole;
    setting.text = std::to_string(*whole);
  } else if (const auto* real = std::get_if<double>(&*value)) {
    setting.kind = Setting::Kind::kReal;
    setting.real = *real;
  } else if (const auto* text = std::get_if<std::string>(&*value)) {
    setting.text = *text;
  } else {
    setting.kind = Setting::Kind::kList;
    setting.text.clear();
    setting.list = std::get<std::vector<std::string>>(*value);
  }
}

/// The map in which a keyword with dots lies.
Setting& map_of(Setting& parent, const std::string& part, const Source& source) {
  for (Setting& member : parent.members) {
    if (member.kind == Setting::Kind::kMap && member.key == part) return member;
  }
  Setting map;
  map.kind = Setting::Kind::kMap;
  map.source = source;
  map.is_pair = true;
  map.key = map.source.key = part;
  map.key_source = map.source;
  parent.members.push_back(std::move(map));
  return parent.members.back();
}

bool has_empty_part(std::string_view name) {
  return name.starts_with('.') || name.ends_with('.') || name.find("..") != std::string_view::npos;
}

}  // namespace

HostKey host_key_of(std::string_view pair, const std::string& name) {
  check_host_text(pair, name);
  const size_t equals = pair.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw Error(ErrorCode::kInvalidArgument, name + ": `" + shown(std::string(pair)) + "` is not written name=value");
  }
  return {std::string(pair.substr(0, equals)), std::string(pair.substr(equals + 1))};
}

bool is_variable(std::string_view name) {
  return std::none_of(name.begin(), name.end(), [](unsigned char c) { return std::islower(c) != 0; });
}

Setting settings_of(std::span<const HostKey> keys, const std::string& name) {
  Setting root;
  root.kind = Setting::Kind::kMap;
  root.source.file = name;
  root.source.translated = true;
  root.key_source = root.source;
  ReadBudget budget;
  size_t bytes = 0;
  for (const HostKey& key : keys) {
    const bool has_place = !key.source.file.empty() || !key.source.override_text.empty();
    Source source = has_place ? key.source : root.source;
    source.translated = true;
    check_host_text(key.name, name);
    ReadBudget::check_key(key.name, source);
    bytes += key.name.size() + key.value.size();
    if (bytes > kMostHostBytes) throw error_at(root.source, {}, "the values are larger than a configuration can be");
    check_host_text(key.value, name + ": " + key.name);
    Setting member;
    member.source = source;
    member.is_pair = true;
    Setting* parent = &root;
    size_t begin = 0;
    size_t depth = 1;
    if (is_variable(key.name)) {
      member.kind = Setting::Kind::kText;
      member.text = key.value;
    } else {
      if (has_empty_part(key.name)) {
        throw error_at(root.source, key.name, "`" + key.name + "` is no key: there is no name before or after a dot");
      }
      type_value(member, key.value);
      for (size_t dot = key.name.find('.'); dot != std::string::npos; dot = key.name.find('.', begin), ++depth) {
        budget.count(depth, source);
        parent = &map_of(*parent, key.name.substr(begin, dot - begin), source);
        begin = dot + 1;
      }
    }
    member.key = key.name.substr(begin);
    member.source.key = key.name;
    member.key_source = member.source;
    budget.count(depth, member.source);
    parent->members.push_back(std::move(member));
  }
  return root;
}

}  // namespace fsdp2
