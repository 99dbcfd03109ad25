#include "adapters/adapters.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "adapters/extension_translation.hpp"
#include "registry/error.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

constexpr std::array<std::string_view, 1> kVersionVariable{"FSDP_VERSION"};
constexpr std::array<std::string_view, 3> kAccelerateVariables{"ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"};

constexpr std::array kAdapters{
    Adapter{"accelerate",
            "Hugging Face Accelerate: the file given to `accelerate launch --config_file`",
            translate_accelerate,
            translate_accelerate_keys,
            false,
            {},
            kAccelerateVariables},
    Adapter{"transformers", "Hugging Face transformers: JSON of fsdp_config, or of TrainingArguments with fsdp",
            translate_transformers, translate_transformers_keys},
    Adapter{"torchtitan", "torchtitan: its TOML file, or flags `--section.key value`", translate_torchtitan, nullptr,
            true},
    Adapter{"deepspeed", "DeepSpeed: the JSON file of ZeRO, with comments", translate_deepspeed,
            translate_deepspeed_keys},
    Adapter{"lightning", "LightningCLI: YAML with FSDPStrategy or ModelParallelStrategy", translate_lightning},
    Adapter{"torch_fsdp1", "PyTorch's FullyShardedDataParallel: its keywords as JSON", translate_torch_fsdp1,
            translate_torch_fsdp1_keys},
    Adapter{"composer", "Composer and LLM Foundry: YAML with `fsdp_config`", translate_composer, nullptr, false,
            kVersionVariable},
    Adapter{"torchfort", "TorchFort: its YAML, with a block `fsdp` of this plugin's keys", translate_torchfort},
};

Error no_such_dialect(std::string_view dialect, std::span<const ExtensionAdapter> extensions, const Source& source) {
  std::vector<std::string_view> names;
  for (const Adapter& adapter : kAdapters) names.push_back(adapter.dialect);
  for (const ExtensionAdapter& adapter : extensions) names.emplace_back(adapter.table.dialect);
  return error_at(source, "dialect",
                  "no dialect is called `" + std::string(dialect) + "`; accepted now: " + quoted_list(names),
                  nearest_name(dialect, names), ErrorCode::kNotFound);
}

}  // namespace

std::span<const Adapter> adapters() {
  return kAdapters;
}

const Adapter* find_adapter(std::string_view dialect) {
  const auto* const found = std::find_if(kAdapters.begin(), kAdapters.end(),
                                         [&](const Adapter& adapter) { return adapter.dialect == dialect; });
  return found == kAdapters.end() ? nullptr : found;
}

void check_flags(std::string_view dialect, std::span<const std::string> flags) {
  if (flags.empty()) return;
  std::vector<std::string_view> takers;
  for (const Adapter& adapter : kAdapters) {
    if (!adapter.takes_flags) continue;
    if (adapter.dialect == dialect) return;
    takers.push_back(adapter.dialect);
  }
  const std::string subject =
      dialect.empty() ? "a table [fsdp] without another host's file" : "dialect `" + std::string(dialect) + "`";
  throw Error(ErrorCode::kInvalidArgument, subject + " takes no flags of its host's command line (`" + flags.front() +
                                               "`); those that do: " + quoted_list(takers));
}

Translate find_translation(std::string_view dialect, std::span<const ExtensionAdapter> extensions,
                           const Source& source) {
  Translate translate;
  if (const Adapter* adapter = find_adapter(dialect)) translate = adapter->translate;
  for (const ExtensionAdapter& adapter : extensions) {
    if (!translate && adapter.table.dialect == dialect) translate = translation_by(adapter);
  }
  if (!translate) throw no_such_dialect(dialect, extensions, source);
  return [translate, name = std::string(dialect)](std::string_view text, const std::string& file,
                                                  const TranslationContext& context) {
    check_flags(name, context.flags);
    return translate(text, file, context);
  };
}

std::vector<std::string_view> dialects_of_keys() {
  std::vector<std::string_view> names;
  for (const Adapter& adapter : kAdapters) {
    if (adapter.translate_keys != nullptr) names.push_back(adapter.dialect);
  }
  return names;
}

Translation translate_keys(std::string_view dialect, std::span<const HostKey> keys, const std::string& name,
                           const TranslationContext& context, std::span<const ExtensionAdapter> extensions,
                           const Source& source) {
  const Adapter* adapter = find_adapter(dialect);
  if (adapter != nullptr && adapter->translate_keys != nullptr) {
    check_flags(dialect, context.flags);
    return adapter->translate_keys(keys, name, context);
  }
  const bool takes_files =
      adapter != nullptr ||
      std::any_of(extensions.begin(), extensions.end(), [&](const auto& one) { return one.table.dialect == dialect; });
  if (!takes_files) throw no_such_dialect(dialect, extensions, source);
  throw error_at(source, "dialect",
                 "dialect `" + std::string(dialect) + "` takes a file, not a list of keys, which are for " +
                     quoted_list(dialects_of_keys()));
}

}  // namespace fsdp2
