// What a person reads of a unit, in whatever table.
#pragma once
#include <string>

#include "registry/plan.hpp"

namespace fsdp2 {

/// Its path; "(root)" for the root.
std::string unit_name(const PlannedUnit& unit);

/// The dtypes of its buffers, with what they are cast to and which are frozen; "-" where it has none.
std::string buffers_text(const PlannedUnit& unit);

/// Whether it reshards after forward: "yes", "no", or "to 8" for a block of ranks.
std::string reshard_text(const PlannedUnit& unit);

}  // namespace fsdp2
