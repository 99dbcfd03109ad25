// The sum of equal parts that came from different ranks, in the order given: the result does not depend on timing.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace fsdp2 {

/// output[i] = (parts[0][i] + parts[1][i] + ...) / divisor. Contiguous tensors of one floating dtype and one size; bf16
/// and fp16 are summed in fp32 and rounded once, so no sum overflows. `output` may be one of the parts.
void rank_sum(at::Tensor& output, const std::vector<at::Tensor>& parts, double divisor);

}  // namespace fsdp2
