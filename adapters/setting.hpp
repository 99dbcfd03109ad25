// A host's configuration, whatever it was written in: a tree of settings, each with its place.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/given.hpp"

namespace fsdp2 {

struct Setting {
  enum class Kind : uint8_t { kNull, kBool, kInt, kReal, kText, kList, kMap };
  Kind kind = Kind::kNull;
  bool flag = false;
  int64_t whole = 0;
  double real = 0;
  std::string text;               // of a scalar, what Python's str() gives for it
  std::vector<std::string> list;  // of a list, the texts of its scalars
  std::vector<Setting> members;   // of a map, as written; of a key written twice the last one counts
  bool is_pair = false;           // written name=value, in a list of keys
  std::string key;                // under which it lies in its map
  Source key_source;              // place of the key, and what messages call it
  Source source;                  // place of the value, and what messages call it
};

/// By key. Of a key written twice the last one counts, as in Python's readers of YAML and JSON.
using SettingsTable = std::map<std::string, Setting, std::less<>>;

/// The members of a map. A null setting has none; anything else is an error at its place, where it is called `name`. A
/// key that does not start with `prefix` gets `added`.
SettingsTable table_of(const Setting& map, const std::string& name, std::string_view prefix = {},
                       std::string_view added = {});

/// The member of a map, null or not; or nullptr.
const Setting* find_member(const Setting& map, std::string_view key);

/// The entry, unless it is missing or null.
const Setting* find_entry(const SettingsTable& table, std::string_view key);

/// The whole number that Python's int() reads from it.
std::optional<int64_t> as_int(const Setting& setting);
std::optional<int64_t> int_of(std::string_view text);

/// The finite number that Python's float() reads from it.
std::optional<double> as_number(const Setting& setting);

/// y yes t true on 1 / n no f false off 0, any case.
std::optional<bool> as_truth(const Setting& setting);

/// Whether Python's `if value` takes it for true.
bool is_truthy(const Setting& setting);

std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

std::string_view without_blanks(std::string_view text);

/// The parts between commas; of "" one, which is empty.
std::vector<std::string> split_at_commas(std::string_view text);

/// Text for messages: cut where it is long.
std::string shown(const std::string& text);

/// "key: value" as written, for messages; "key=value" of a list of keys.
std::string as_written(const Setting& setting);

/// An error that lies there: "`key: value` must be ...".
Error setting_fault(const Setting& setting, const std::string& sentence, const std::string& nearest = {});

/// Counts what a reader has made, and ends it where that is more than adapters/limits.hpp allows.
class ReadBudget {
 public:
  /// A key or an element, so deep below the top.
  void count(size_t depth, const Source& source);
  static void check_key(std::string_view key, const Source& source);
  /// An escape can bring a null character into a text, where messages and C strings would end.
  static void check_text(std::string_view text, const Source& source);

 private:
  size_t settings_ = 0;
};

}  // namespace fsdp2
