// DeepSpeed's settings, from its own file or from a host that fills them in.
#pragma once
#include <string>

#include "adapters/adapter.hpp"
#include "adapters/setting.hpp"

namespace fsdp2 {

/// Who completes "auto": nobody here, or accelerate, which clips at 1.0 where nothing is said.
enum class DeepSpeedHost : uint8_t { kNone, kAccelerate };

/// `root` is the map that DeepSpeed's JSON would hold.
Translation translate_deepspeed_settings(const Setting& root, const std::string& file,
                                         const TranslationContext& context, DeepSpeedHost host);

/// The settings of DeepSpeed's file.
Setting read_deepspeed(std::string_view text, const std::string& file);

}  // namespace fsdp2
