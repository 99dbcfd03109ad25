// Which options contradict each other.
#pragma once
#include <string_view>

#include "registry/config.hpp"

namespace fsdp2 {

/// Whether a strategy and a reshard rule say the same. "auto" goes with all, a plugin's strategy with anything.
bool goes_together(std::string_view strategy, const ReshardAfterForward& reshard);

/// Refuses contradictions, naming both sides.
void check_consistent(const Config& config);

/// Refuses a wrap policy without the key it needs.
void check_wrap_complete(const Config& config);

}  // namespace fsdp2
