// CUDA graphs: a replay repeats kernels, but none of what a unit does on the host.
#pragma once
#include <c10/core/Device.h>

#include <string>

namespace fsdp2 {

/// Throws Error (kFailedPrecondition), with `what` in front ("unit `layers.0`"), while the current stream of `device`
/// is being captured. Builds without CUDA have nothing to look for.
void refuse_stream_capture(c10::Device device, const std::string& what);

}  // namespace fsdp2
