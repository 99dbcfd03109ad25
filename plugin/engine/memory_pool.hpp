// Memory of unsharded parameters, used again from unit to unit: fresh pages cost several times the copy into them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace fsdp2 {

/// Hands out blocks of LibTorch's allocator and takes them back when their DataPtr is dropped. On CUDA LibTorch's
/// caching allocator does this already, so there the pool only passes requests on. Thread-safe. Must be owned by a
/// shared_ptr.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// Keeps at most `keep_bytes` of unused memory.
  MemoryPool(c10::Device device, size_t keep_bytes) : device_(device), keep_bytes_(keep_bytes) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Uninitialised memory of at least `bytes`, aligned as LibTorch aligns. Throws c10::Error when there is none.
  [[nodiscard]] c10::DataPtr allocate(size_t bytes);
  /// An uninitialised tensor [numel] in such memory.
  [[nodiscard]] at::Tensor empty(int64_t numel, at::TensorOptions options);

  /// Frees what is unused and keeps nothing from now on.
  void close();

  /// From now on what comes back is neither used again nor freed: a collective has failed, and a transport of the
  /// host's may still write where it was told to.
  void abandon();

 private:
  struct Block;
  static void give_back(void* context);
  void keep_or_free(c10::DataPtr memory, size_t bytes);

  c10::Device device_;
  size_t keep_bytes_;
  std::mutex mutex_;
  std::multimap<size_t, c10::DataPtr> unused_;
  size_t unused_bytes_ = 0;
  bool abandoned_ = false;
};

}  // namespace fsdp2
