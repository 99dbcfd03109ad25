#include "registry/toml_reader.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "registry/config.hpp"
#include "registry/host_text.hpp"
#include "registry/keys.hpp"
#include "registry/toml_nesting.hpp"

namespace fsdp2 {
namespace {

struct Leaf {
  std::string key;         // dotted, under [fsdp]
  const toml::node* node;  // null never
  toml::source_position key_position;
};

/// The dotted leaves of a table. An empty table is a leaf too, so that a misspelt one does not pass unseen.
void collect_leaves(const toml::table& table, const std::string& prefix, std::vector<Leaf>& leaves) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const toml::table* inner = node.as_table();
    if (inner != nullptr && !inner->empty()) {
      collect_leaves(*inner, name + ".", leaves);
    } else {
      leaves.push_back({name, &node, key.source().begin});
    }
  }
}

Source at(const Source& origin, const toml::source_position& position) {
  Source source = origin;
  if (source.override_text.empty()) {
    source.line = position.line;
    source.column = position.column;
  }
  return source;
}

/// An escape can bring one into a string, where messages and C strings would end.
bool has_null_character(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

std::optional<Value> value_of(const toml::node& node) {
  if (const auto* flag = node.as_boolean()) return Value(flag->get());
  if (const auto* whole = node.as_integer()) return Value(whole->get());
  if (const auto* real = node.as_floating_point()) return Value(real->get());
  if (const auto* text = node.as_string()) {
    return has_null_character(text->get()) ? std::nullopt : std::optional<Value>(text->get());
  }
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  std::vector<std::string> list;
  for (const toml::node& element : *array) {
    const auto* text = element.as_string();
    if (text == nullptr || has_null_character(text->get())) return std::nullopt;
    list.push_back(text->get());
  }
  return Value(std::move(list));
}

std::string kind_of_node(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_string()) return "a string with a null character";
  if (node.is_array()) return "a list that holds something else";
  return "a date or time";
}

/// True for "wrap", "mesh" and the other names that only have keys below them.
bool is_group(std::string_view name) {
  if (name == "strategy_options") return true;
  const std::string prefix = std::string(name) + ".";
  const auto specs = key_specs();
  return std::any_of(specs.begin(), specs.end(), [&](const KeySpec& spec) { return spec.name.starts_with(prefix); });
}

Given checked(const Leaf& leaf, const Source& origin) {
  const KeySpec* spec = find_key(leaf.key);
  const Source key_place = at(origin, leaf.key_position);
  if (has_null_character(leaf.key)) throw error_at(key_place, {}, "a key of [fsdp] has a null character");
  if (spec == nullptr) {
    if (is_group(leaf.key)) {
      if (leaf.node->is_table()) return {Value(false), {}};
      throw error_at(key_place, leaf.key, "`" + leaf.key + "` is a table of keys, not a value");
    }
    throw error_at(key_place, leaf.key, "[fsdp] has no key `" + leaf.key + "`", nearest_key(leaf.key));
  }
  const Source source = at(origin, leaf.node->source().begin);
  const std::string must = "`" + leaf.key + "` must be " + std::string(spec->allowed) + ", ";
  const std::optional<Value> value = value_of(*leaf.node);
  if (!value) throw error_at(source, leaf.key, must + "not " + kind_of_node(*leaf.node));
  Fsdp2Options scratch;
  if (const auto fault = spec->take(scratch, *value)) {
    throw error_at(source, leaf.key, must + fault->sentence, fault->nearest);
  }
  return {*value, source};
}

/// Checks the leaves in the order of the file, so that the first fault is the one reported.
void add_leaves(const toml::table& table, const std::string& prefix, const Source& origin, GivenKeys& given) {
  std::vector<Leaf> leaves;
  collect_leaves(table, prefix, leaves);
  std::stable_sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) {
    return std::pair(a.key_position.line, a.key_position.column) <
           std::pair(b.key_position.line, b.key_position.column);
  });
  for (const Leaf& leaf : leaves) {
    Given entry = checked(leaf, origin);
    if (leaf.node->is_table()) continue;  // an empty group
    // The two forms of activation_checkpointing replace each other.
    if (leaf.key.starts_with("activation_checkpointing")) {
      std::erase_if(given, [&](const auto& item) {
        return item.first.starts_with("activation_checkpointing") && item.second.source.override_text.empty() &&
               !entry.source.override_text.empty();
      });
    }
    given[leaf.key] = std::move(entry);
  }
}

bool is_bare_word(std::string_view text) {
  constexpr std::string_view kOpening = "\"'[{";
  return !text.empty() && kOpening.find(text.front()) == std::string_view::npos &&
         text.find('\n') == std::string_view::npos;
}

/// "x = value", which is more than one entry where `value` goes on after a value.
toml::table parse_value(std::string_view value) {
  const std::string text = "x = " + std::string(value);
  check_toml_nesting(text, {});
  return toml::parse(text);
}

/// `value` as the only entry of a table, "x = value".
toml::table parse_override_value(const Source& source, const std::string& key, const std::string& value) {
  std::string fault = "more than one value";
  try {
    toml::table table = parse_value(value);
    if (table.size() == 1) return table;
  } catch (const Error& error) {
    fault = error.what();
  } catch (const toml::parse_error& error) {
    fault = std::string(error.description());
  }
  if (!is_bare_word(value)) throw error_at(source, key, "the value is not TOML: " + fault);
  toml::table table;
  table.insert("x", value);
  return table;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) - begin + 1));
}

/// A new policy makes the keys of the old one meaningless, and a command line cannot take keys away.
void drop_keys_of_other_policies(GivenKeys& given, const std::string& policy) {
  for (const auto& [owner, key] : {std::pair("transformer", "wrap.layer_classes"),
                                   std::pair("size", "wrap.min_num_params"), std::pair("modules", "wrap.modules")}) {
    const auto found = given.find(key);
    if (found != given.end() && policy != owner && found->second.source.override_text.empty()) given.erase(found);
  }
}

/// The same for the own options of a strategy that gives way to one of ours.
void drop_options_of_other_strategies(GivenKeys& given, const std::string& strategy) {
  if (is_from_outside(strategy)) return;
  std::erase_if(given, [](const auto& item) {
    return !strategy_option_name(item.first).empty() && item.second.source.override_text.empty();
  });
}

}  // namespace

std::optional<Value> read_value(std::string_view toml) {
  try {
    const toml::table table = parse_value(toml);
    return table.size() == 1 ? value_of(*table.get("x")) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

GivenKeys read_given(std::string_view toml, const std::string& name) {
  Source origin;
  origin.file = name;
  check_host_text(toml, name);
  check_toml_nesting(toml, name);
  toml::table document;
  try {
    document = toml::parse(toml, name);
  } catch (const toml::parse_error& error) {
    throw error_at(at(origin, error.source().begin), {}, "this is not TOML: " + std::string(error.description()));
  }
  GivenKeys given;
  const toml::node* node = document.get("fsdp");
  if (node == nullptr) return given;
  const toml::table* table = node->as_table();
  if (table == nullptr) {
    throw error_at(at(origin, node->source().begin), "fsdp", "`fsdp` must be a table, [fsdp]");
  }
  add_leaves(*table, "", origin, given);
  return given;
}

GivenKeys read_given_file(const std::string& file) {
  Source origin;
  origin.file = file;
  return read_given(read_host_file(file, origin, {}), file);
}

void apply_overrides(GivenKeys& given, std::span<const std::string> overrides) {
  for (size_t i = 0; i < overrides.size(); ++i) {
    const std::string& text = overrides[i];
    check_host_text(text, "override " + std::to_string(i + 1));
    Source source;
    source.override_text = text;
    const size_t equals = text.find('=');
    const std::string key = trimmed(std::string_view(text).substr(0, equals));
    if (equals == std::string::npos || key.empty()) {
      throw error_at(source, key, "an override is written key=value, with a key of [fsdp]");
    }
    const std::string value = trimmed(std::string_view(text).substr(equals + 1));
    if (value.empty()) throw error_at(source, key, "the override has no value");
    toml::table parsed = parse_override_value(source, key, value);
    toml::table table;
    table.insert(key, std::move(*parsed.get("x")));
    add_leaves(table, "", source, given);
    if (key == "strategy") drop_options_of_other_strategies(given, std::get<std::string>(given.at(key).value));
    if (key == "wrap.policy") drop_keys_of_other_policies(given, std::get<std::string>(given.at(key).value));
  }
}

Fsdp2Options read_options(std::string_view toml, const std::string& name, std::span<const std::string> overrides) {
  GivenKeys given = read_given(toml, name);
  apply_overrides(given, overrides);
  return resolve(given).options;
}

}  // namespace fsdp2
