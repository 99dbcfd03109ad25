// Translates host configurations for a test in Python: a JSON object a line in, one a line out.
//   {"dialect": "accelerate", "text": "..."} or {"dialect": "accelerate", "keys": [["fsdp_version", "2"]]}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "adapters/adapters.hpp"
#include "registry/config.hpp"

namespace {

using fsdp2::HostKey;
using nlohmann::json;

fsdp2::Translation translate(const json& request) {
  const std::string dialect = request.at("dialect");
  if (request.contains("text")) {
    return fsdp2::find_translation(dialect)(request.at("text").get<std::string>(), "host", {});
  }
  std::vector<HostKey> keys;
  for (const json& pair : request.at("keys")) keys.push_back({pair.at(0), pair.at(1)});
  return fsdp2::translate_keys(dialect, keys, "host", {});
}

json answer(const json& request) {
  try {
    const fsdp2::Translation translation = translate(request);
    fsdp2::resolve({}, translation.given);
    json given = json::object();
    for (const auto& [key, entry] : translation.given) {
      std::visit([&](const auto& value) { given[key] = value; }, entry.value);
    }
    return {{"given", given}, {"notes", translation.notes}, {"obsolete", translation.obsolete}};
  } catch (const fsdp2::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(json::parse(line)) << "\n";
  return 0;
}
