#include "plugin/cli/options_json.hpp"

#include <string>
#include <variant>

#include "registry/keys.hpp"

namespace fsdp2::cli {

Json json_of(const Value& value) {
  return std::visit([](const auto& given) { return Json(given); }, value);
}

Json options_json(const Fsdp2Options& options) {
  Json json = Json::object();
  const auto put = [&](const std::string& key, const Json& value) {
    Json* table = &json;
    size_t begin = 0;
    for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', begin)) {
      table = &(*table)[key.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    (*table)[key.substr(begin)] = value;
  };
  for (const KeySpec& spec : key_specs()) {
    Value value;
    if (spec.give(options, value)) put(std::string(spec.name), json_of(value));
  }
  for (const auto& [name, option] : options.strategy_options) {
    std::visit([&, &name = name](const auto& value) { put("strategy_options." + name, Json(value)); }, option);
  }
  return json;
}

}  // namespace fsdp2::cli
