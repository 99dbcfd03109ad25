// A block of a YAML file as the hosts that read it with PyYAML see it: scalars typed by the rules of YAML 1.1, each
// with its place in the file.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/given.hpp"

namespace YAML {
class Node;
}

namespace fsdp2 {

struct YamlEntry {
  enum class Kind : uint8_t { kNull, kBool, kInt, kText, kList, kMap };
  Kind kind = Kind::kNull;
  bool flag = false;
  int64_t whole = 0;
  std::string text;               // what Python's str() gives for a scalar
  std::vector<std::string> list;  // of a list of scalars
  Source key_source;              // place of the key, and the key as written
  Source source;                  // place of the value, and the key as written
};

/// By key. Of a key written twice the last one counts, as in PyYAML.
using YamlBlock = std::map<std::string, YamlEntry, std::less<>>;

/// The entries of a mapping. A null node has none; anything else is an error at its place. A key that does not start
/// with `prefix` gets `added`.
YamlBlock read_block(const YAML::Node& node, const std::string& file, const std::string& name,
                     std::string_view prefix = {}, std::string_view added = {});

/// The entry, unless it is missing or null.
const YamlEntry* find_entry(const YamlBlock& block, std::string_view key);

/// The whole number that Python's int() reads from it.
std::optional<int64_t> as_int(const YamlEntry& entry);

/// y yes t true on 1 / n no f false off 0, any case.
std::optional<bool> as_truth(const YamlEntry& entry);

/// Whether Python's `if value` takes it for true.
bool is_truthy(const YamlEntry& entry);

std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

/// "key: value" as written, for messages.
std::string as_written(const YamlEntry& entry);

}  // namespace fsdp2
