// The keys somebody wrote, each with its value and its place, before they become options. The TOML reader, the
// overrides and the adapters all make these; resolve() joins and checks them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "registry/error.hpp"

namespace fsdp2 {

/// Where a key was written. All empty: in a program.
struct Source {
  std::string file = {};
  int64_t line = 0;  // from 1; 0 is unknown
  int64_t column = 0;
  std::string override_text = {};  // the whole override, "wrap.policy=size"
  std::string key = {};            // as written there, which in another host's file is not our name; empty: ours
  bool translated = false;         // comes from another host's file
  bool operator==(const Source&) const = default;
};

/// "train.toml:3:5: ", "override `wrap.policy=size`: ", or nothing.
std::string place(const Source& source);

/// An error that lies there: the sentence gets the place in front, and "did you mean `nearest`?" behind.
Error error_at(const Source& source, const std::string& key, const std::string& sentence,
               const std::string& nearest = {}, ErrorCode code = ErrorCode::kConfig);

using Value = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

struct Given {
  Value value;
  Source source;
};

/// By canonical dotted key: "wrap.policy".
using GivenKeys = std::map<std::string, Given, std::less<>>;

}  // namespace fsdp2
