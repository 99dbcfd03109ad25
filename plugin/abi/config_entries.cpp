// Entries that list what there is and read configurations. None of them needs LibTorch.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "plugin/abi/arguments.hpp"
#include "plugin/abi/config_handle.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/handshake.hpp"
#include "plugin/abi/status.hpp"
#include "registry/registry.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2::entries {
namespace {

struct NameAndHelp {
  std::string name;
  std::string help;
};

/// Null-terminated copies of a table's texts. Made once and leaked: they live as long as the library.
template <typename Table, typename NameOf>
const std::vector<NameAndHelp>& leaked_texts(const Table& table, const NameOf& name_of) {
  auto& texts = *new std::vector<NameAndHelp>;
  for (const auto& entry : table) texts.push_back({std::string(name_of(entry)), std::string(entry.help)});
  return texts;
}

const std::vector<NameAndHelp>& strategy_texts() {
  static const auto& texts = leaked_texts(strategies(), [](const Strategy& strategy) { return strategy.name; });
  return texts;
}

const std::vector<NameAndHelp>& dialect_texts() {
  static const auto& texts = leaked_texts(adapters(), [](const Adapter& adapter) { return adapter.dialect; });
  return texts;
}

const char* text_at(const std::vector<NameAndHelp>& texts, size_t index, std::string NameAndHelp::*part) {
  return index < texts.size() ? (texts[index].*part).c_str() : nullptr;
}

std::vector<std::string> overrides_of(const fsdp2_config_args& args) {
  if (args.override_count > 0) require_argument(args.overrides, "fsdp2_config_args.overrides");
  std::vector<std::string> overrides;
  for (size_t i = 0; i < args.override_count; ++i) {
    overrides.emplace_back(&require_argument(args.overrides[i], "an entry of fsdp2_config_args.overrides"));
  }
  return overrides;
}

/// Without a value where no list was given; an empty list is one.
std::optional<std::vector<HostKey>> host_keys_of(const fsdp2_config_args& args) {
  if (args.host_key_count > 0) require_argument(args.host_keys, "fsdp2_config_args.host_keys");
  if (args.host_keys == nullptr) return std::nullopt;
  std::vector<HostKey> keys;
  for (size_t i = 0; i < args.host_key_count; ++i) {
    const std::string name = "fsdp2_config_args.host_keys[" + std::to_string(i) + "]";
    keys.push_back(host_key_of(&require_argument(args.host_keys[i], name.c_str()), name));
  }
  return keys;
}

Config load(const fsdp2_config_args& args) {
  if (args.path != nullptr && args.text != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "fsdp2_config_args has both path and text");
  }
  const auto overrides = overrides_of(args);
  const auto keys = host_keys_of(args);
  if (args.path == nullptr && args.text == nullptr && !keys) {
    throw Error(ErrorCode::kInvalidArgument, "fsdp2_config_args needs either path or text, or host_keys");
  }
  if (args.path != nullptr) return load_config(args.path, overrides, keys);
  return load_config_text(args.text != nullptr ? args.text : "", "<text>", overrides, keys);
}

}  // namespace

size_t strategy_count() noexcept {
  return strategy_texts().size();
}
const char* strategy_name(size_t index) noexcept {
  return text_at(strategy_texts(), index, &NameAndHelp::name);
}
const char* strategy_help(size_t index) noexcept {
  return text_at(strategy_texts(), index, &NameAndHelp::help);
}
size_t dialect_count() noexcept {
  return dialect_texts().size();
}
const char* dialect_name(size_t index) noexcept {
  return text_at(dialect_texts(), index, &NameAndHelp::name);
}
const char* dialect_help(size_t index) noexcept {
  return text_at(dialect_texts(), index, &NameAndHelp::help);
}

fsdp2_status* config_load(const fsdp2_config_args* given, fsdp2_config** out) noexcept {
  return guard([&] {
    require_argument(out, "out") = nullptr;
    const auto args = read_struct(given, "fsdp2_config_args");
    auto config = std::make_shared<HeldConfig>(HeldConfig{load(args), {}});
    config->toml = to_toml(config->config.options);
    if (!config->config.warning.empty()) log_to_host(true, config->config.warning);
    for (const std::string& note : config->config.notes) log_to_host(false, note);
    *out = ConfigHandles::live().add(std::move(config));
  });
}

const char* config_toml(const fsdp2_config* config) noexcept {
  const auto held = ConfigHandles::live().find(config);
  return held ? held->toml.c_str() : "";
}

const char* config_warning(const fsdp2_config* config) noexcept {
  const auto held = ConfigHandles::live().find(config);
  return held ? held->config.warning.c_str() : "";
}

size_t config_note_count(const fsdp2_config* config) noexcept {
  const auto held = ConfigHandles::live().find(config);
  return held ? held->config.notes.size() : 0;
}

const char* config_note(const fsdp2_config* config, size_t index) noexcept {
  const auto held = ConfigHandles::live().find(config);
  return held && index < held->config.notes.size() ? held->config.notes[index].c_str() : nullptr;
}

void config_release(fsdp2_config* config) noexcept {
  ConfigHandles::live().remove(config);
}

}  // namespace fsdp2::entries
