#include "plugin/engine/stream_capture.hpp"

#ifdef FSDP2_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "registry/error.hpp"

namespace fsdp2 {

void refuse_stream_capture([[maybe_unused]] c10::Device device, [[maybe_unused]] const std::string& what) {
#ifdef FSDP2_WITH_CUDA
  if (!device.is_cuda()) return;
  auto status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device.index()), &status));
  if (status == cudaStreamCaptureStatusNone) return;
  throw Error(ErrorCode::kFailedPrecondition,
              what +
                  " would run while its stream is captured: a CUDA graph cannot hold a sharded module, whose replay " +
                  "would neither gather nor reduce. Capture parts outside of it, or detach first");
#endif
}

}  // namespace fsdp2
