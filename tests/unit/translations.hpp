// Shared by the tests of adapters: what a translation holds, in the words of a test.
#pragma once
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "adapters/adapter.hpp"
#include "helpers.hpp"

namespace fsdp2::test {

/// The lines of a YAML block, deeper by `blanks`; empty ones are left out.
inline std::string indented(const std::string& lines, size_t blanks) {
  std::istringstream stream(lines);
  std::string block;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) block += std::string(blanks, ' ') + line + "\n";
  }
  return block;
}

/// The call throws an error that begins with the place, "a.json:1:", and has the sentence.
template <typename Call>
void expect_fault(Call call, const std::string& place, const std::string& sentence) {
  const std::string found = text_of(call);
  EXPECT_EQ(found.find(place), 0U) << found;
  EXPECT_NE(found.find(sentence), std::string::npos) << found;
}

inline bool notes_name(const Translation& translation, const std::string& text) {
  for (const std::string& note : translation.notes) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

template <typename T>
T value(const Translation& translation, const std::string& key) {
  const auto found = translation.given.find(key);
  EXPECT_NE(found, translation.given.end()) << key;
  if (found == translation.given.end()) return T{};
  const T* held = std::get_if<T>(&found->second.value);
  EXPECT_NE(held, nullptr) << key << " is of another type";
  return held == nullptr ? T{} : *held;
}

inline std::string text_value(const Translation& translation, const std::string& key) {
  return value<std::string>(translation, key);
}

inline std::vector<std::string> list_value(const Translation& translation, const std::string& key) {
  return value<std::vector<std::string>>(translation, key);
}

/// The value of a key, as TOML would have it: "true", "2", "full_shard", "a, b"; "-" where the key is not given.
inline std::string value_of(const Translation& translation, const std::string& key) {
  const auto found = translation.given.find(key);
  if (found == translation.given.end()) return "-";
  const Value& value = found->second.value;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    std::string text;
    for (const std::string& element : *list) text += (text.empty() ? "" : ", ") + element;
    return text;
  }
  std::string text = std::to_string(std::get<double>(value));
  while (text.ends_with('0')) text.pop_back();
  return text.ends_with('.') ? text + "0" : text;
}

/// Strategy and reshard rule, which come together: "full_shard true".
inline std::string strategy_of(const Translation& translation) {
  return value_of(translation, "strategy") + " " + value_of(translation, "reshard_after_forward");
}

/// The mesh, "2 x -1".
inline std::string mesh_in(const Translation& translation) {
  return value_of(translation, "mesh.replicate") + " x " + value_of(translation, "mesh.shard");
}

}  // namespace fsdp2::test
