// The adapters there are, by dialect.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "adapters/adapter.hpp"

namespace fsdp2 {

std::span<const Adapter> adapters();

/// The adapter of that dialect, or an error at `source` with the nearest one.
const Adapter& find_adapter(std::string_view dialect, const Source& source = {});

/// The launch file (YAML or JSON) of Hugging Face Accelerate, versions 1 and 2 of FSDP.
Translation translate_accelerate(std::string_view text, const std::string& file, const TranslationContext& context);

}  // namespace fsdp2
