#include "adapters/adapters.hpp"

#include <array>
#include <vector>

#include "adapters/extension_translation.hpp"
#include "registry/error.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

constexpr std::array kAdapters{
    Adapter{"accelerate", "Hugging Face Accelerate: the file given to `accelerate launch --config_file`",
            translate_accelerate},
    Adapter{"torchtitan", "torchtitan: its TOML file, or flags `--section.key value`", translate_torchtitan},
    Adapter{"lightning", "LightningCLI: YAML with FSDPStrategy or ModelParallelStrategy", translate_lightning},
    Adapter{"composer", "Composer and LLM Foundry: YAML with `fsdp_config`", translate_composer},
    Adapter{"torchfort", "TorchFort: its YAML, with a block `fsdp` of this plugin's keys", translate_torchfort},
};

}  // namespace

std::span<const Adapter> adapters() {
  return kAdapters;
}

Translate find_translation(std::string_view dialect, std::span<const ExtensionAdapter> extensions,
                           const Source& source) {
  std::vector<std::string_view> names;
  for (const Adapter& adapter : kAdapters) {
    if (adapter.dialect == dialect) return adapter.translate;
    names.push_back(adapter.dialect);
  }
  for (const ExtensionAdapter& adapter : extensions) {
    if (adapter.table.dialect == dialect) return translation_by(adapter);
    names.emplace_back(adapter.table.dialect);
  }
  throw error_at(source, "dialect",
                 "no dialect is called `" + std::string(dialect) + "`; accepted now: " + quoted_list(names),
                 nearest_name(dialect, names), ErrorCode::kNotFound);
}

}  // namespace fsdp2
