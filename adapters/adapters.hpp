// The adapters there are, by dialect.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/adapter.hpp"
#include "registry/extensions.hpp"

namespace fsdp2 {

/// Those that are built in.
std::span<const Adapter> adapters();

/// The one that is built in, or null.
const Adapter* find_adapter(std::string_view dialect);

/// An error, with the dialects that take flags of their host's command line, where there are some and this one does
/// not.
void check_flags(std::string_view dialect, std::span<const std::string> flags);

/// What takes files of that dialect, an adapter of ours or of an extension; or an error at `source` with the nearest
/// one.
Translate find_translation(std::string_view dialect, std::span<const ExtensionAdapter> extensions = {},
                           const Source& source = {});

/// Those that take a list of keys.
std::vector<std::string_view> dialects_of_keys();

/// From a host's own keys where there is no file, called `name` in messages. Adapters of extensions take files alone.
Translation translate_keys(std::string_view dialect, std::span<const HostKey> keys, const std::string& name,
                           const TranslationContext& context, std::span<const ExtensionAdapter> extensions = {},
                           const Source& source = {});

/// Hugging Face Accelerate, versions 1 and 2 of FSDP, and its DeepSpeed: the launch file (YAML or JSON); the keywords
/// of its plugin, and its variables.
Translation translate_accelerate(std::string_view text, const std::string& file, const TranslationContext& context);
Translation translate_accelerate_keys(std::span<const HostKey> keys, const std::string& name,
                                      const TranslationContext& context);

/// DeepSpeed's JSON, with comments.
Translation translate_deepspeed(std::string_view text, const std::string& file, const TranslationContext& context);
Translation translate_deepspeed_keys(std::span<const HostKey> keys, const std::string& name,
                                     const TranslationContext& context);

/// Hugging Face transformers: JSON of `fsdp_config`, or of TrainingArguments with `fsdp`.
Translation translate_transformers(std::string_view text, const std::string& file, const TranslationContext& context);
Translation translate_transformers_keys(std::span<const HostKey> keys, const std::string& name,
                                        const TranslationContext& context);

/// The keywords of PyTorch's FullyShardedDataParallel, as JSON with comments.
Translation translate_torch_fsdp1(std::string_view text, const std::string& file, const TranslationContext& context);
Translation translate_torch_fsdp1_keys(std::span<const HostKey> keys, const std::string& name,
                                       const TranslationContext& context);

/// torchtitan's TOML file, or its flags `--section.key value`.
Translation translate_torchtitan(std::string_view text, const std::string& file, const TranslationContext& context);

/// LightningCLI's YAML with FSDPStrategy or ModelParallelStrategy.
Translation translate_lightning(std::string_view text, const std::string& file, const TranslationContext& context);

/// The YAML of Composer's LLM Foundry.
Translation translate_composer(std::string_view text, const std::string& file, const TranslationContext& context);

/// TorchFort's YAML, with a block `fsdp` of our own keys.
Translation translate_torchfort(std::string_view text, const std::string& file, const TranslationContext& context);

}  // namespace fsdp2
