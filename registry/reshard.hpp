// `reshard_after_forward` as a number of ranks, on the ranks that shard a parameter.
#pragma once
#include <cstdint>
#include <string>

#include "registry/plan.hpp"

namespace fsdp2 {

/// What is wrong with that number, "" where it fits: it must divide `mesh.shard`. Where nothing is sharded any fits.
std::string fault_of_block(int64_t ranks, const Mesh& mesh);

/// As PyTorch's fully_shard takes the number: all of `mesh.shard` is true, 1 is false, one between is the block to
/// which the unit reshards. Of no effect where nothing is sharded. Throws Error (kConfig), at the key, where
/// it does not fit.
void reshard_to(PlannedUnit& unit, int64_t ranks, const Mesh& mesh);

}  // namespace fsdp2
