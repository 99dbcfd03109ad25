// Norms and scalings of gradients that lie in shards over the ranks. As torch.nn.utils and torch.amp have them for
// whole ones.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "plugin/engine/communicator.hpp"

namespace fsdp2 {

/// (sum of |g|^p)^(1/p) over all elements of all ranks, the greatest |g| where p is infinity; sums in fp64, rank after
/// rank, so the result is the same on each. `across` is null where every rank holds all of every gradient; `device` is
/// the parameters'. Throws Error (kInvalidArgument) unless p > 0. Collective.
double gradient_norm(std::span<const at::Tensor> gradients, double p, Communicator* across, c10::Device device);

/// Divides by `scale`; whether any element on any rank is not finite afterwards. Collective.
bool unscale_gradients(std::span<const at::Tensor> gradients, double scale, Communicator* across, c10::Device device);

/// Multiplies all gradients with `factor`. Local.
void scale_gradients(std::span<const at::Tensor> gradients, double factor);

}  // namespace fsdp2
