// The adapters there are, by dialect.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "adapters/adapter.hpp"
#include "registry/extensions.hpp"

namespace fsdp2 {

/// Those that are built in.
std::span<const Adapter> adapters();

/// What takes files of that dialect, an adapter of ours or of an extension; or an error at `source` with the nearest
/// one.
Translate find_translation(std::string_view dialect, std::span<const ExtensionAdapter> extensions = {},
                           const Source& source = {});

/// The launch file (YAML or JSON) of Hugging Face Accelerate, versions 1 and 2 of FSDP.
Translation translate_accelerate(std::string_view text, const std::string& file, const TranslationContext& context);

/// torchtitan's TOML file, or its flags `--section.key value`.
Translation translate_torchtitan(std::string_view text, const std::string& file, const TranslationContext& context);

/// LightningCLI's YAML with FSDPStrategy or ModelParallelStrategy.
Translation translate_lightning(std::string_view text, const std::string& file, const TranslationContext& context);

/// The YAML of Composer's LLM Foundry.
Translation translate_composer(std::string_view text, const std::string& file, const TranslationContext& context);

/// TorchFort's YAML, with a block `fsdp` of our own keys.
Translation translate_torchfort(std::string_view text, const std::string& file, const TranslationContext& context);

}  // namespace fsdp2
