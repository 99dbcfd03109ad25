// The layout `per_parameter`, that of PyTorch's fully_shard: every parameter is cut by itself, in dimension 0, as
// torch.chunk does (DTensor's Shard(0)). Each rank has a chunk of ceil(rows / W) rows; the last ranks' chunks hold
// fewer rows or none, and are padded.
//
// A weight [5, 2] and a bias [4] over 3 ranks, w and b for one element of either and . for padding:
//
//   gathered          part of rank 0    part of rank 1    part of rank 2
//                     w w w w b b       w w w w b b       w w . . . .
//   full parameters   w w w w w w w w w w . .   b b b b . .
//
// So the gathered parts are not the parameters: they are copied out into memory of their own, where each parameter
// begins at a multiple of 64 bytes. (The chunks of a parameter are copied whole, with their padding.) Where a buffer
// holds one parameter, or there is one rank, the two are the same and nothing is copied.
#pragma once
#include <cstdint>
#include <span>

#include "registry/layout.hpp"

namespace fsdp2 {

UnitLayout per_parameter_layout(std::span<const LayoutParameter> parameters, int64_t ranks);

/// W - 1 rows a parameter; for one rank, what aligning costs at most: 64 bytes a parameter.
int64_t per_parameter_padding_bound(const PlannedUnit& unit, int64_t ranks);

}  // namespace fsdp2
