// The layout `ragged`: where each parameter of a unit lies in its flat buffers, and how long a rank's part is. Pure
// arithmetic.
//
// One buffer holds the parameters of one dtype that are all trainable or all frozen, one after the other. The buffer is
// cut into W equal parts. With 3 ranks, a weight [4, 32] and a bias [32], both float32 (a row of the weight is 128
// bytes):
//
//   byte   0        128       256       384       512       640       768
//          |  row 0 |  row 1  |  row 2  |  row 3  |  bias   | padding |
//          |  part of rank 0  |  part of rank 1   |  part of rank 2   |
//
// 640 bytes are parameters, a third is 213.3: the smallest part that is a multiple of 16 bytes and cuts between rows is
// 256. (That pads 20 %, but no cut inside a row could pad less than a multiple of 64 bytes a rank, here also 256.)
//
// Rules, in this order:
//   - Every parameter starts at a multiple of 64 bytes, or of 16 where 64 would cost over 1 %.
//   - A part is a multiple of 16 bytes, and the smallest one for which every cut falls between rows of the parameter it
//     hits, between parameters, or in padding.
//   - If that pads over 1 %, and more than cutting inside rows would, a part is a multiple of 64 bytes (of 16,
//     where the bound asks for it) and cuts fall where they fall.
// The search for the second rule skips from one row end to the next and stops after a fixed number of steps, so that a
// plan for 16,384 ranks stays fast; a search that is stopped counts as one that found nothing.
#pragma once
#include <cstdint>
#include <span>

#include "registry/layout.hpp"

namespace fsdp2 {

UnitLayout ragged_layout(std::span<const LayoutParameter> parameters, int64_t ranks);

/// 1 % for units of at least 16 KiB a rank, unless their parameters are so small that aligning them to 16 bytes costs
/// more; for smaller units 64 bytes a parameter and 64 a rank and buffer.
int64_t ragged_padding_bound(const PlannedUnit& unit, int64_t ranks);

}  // namespace fsdp2
