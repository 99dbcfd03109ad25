// Numbers that tests/models/values.py makes in Python: integer arithmetic, no random generator.
#pragma once
#include <ATen/ATen.h>

namespace fsdp2::testing {

/// Element k, row-major: (((7k + s) mod 13) - 6) * 0.05.
inline at::Tensor fill(at::IntArrayRef shape, int64_t s) {
  const at::Tensor k = at::arange(c10::multiply_integers(shape), at::kLong);
  return ((7 * k + s).remainder(13) - 6).to(at::kDouble).mul(0.05).to(at::kFloat).reshape(shape);
}

/// Token ids of one rank's batch in one step.
inline at::Tensor token_ids(int64_t step, int64_t rank, int64_t batch, int64_t length, int64_t vocabulary) {
  const at::Tensor i = at::arange(batch * length, at::kLong);
  const int64_t start = 1009 * step + 523 * rank;
  return (17 * i * i + 31 * i + start * (i + 3)).remainder(vocabulary).reshape({batch, length});
}

}  // namespace fsdp2::testing
