#include "plugin/engine/memory_pool.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

namespace fsdp2 {

struct MemoryPool::Block {
  std::shared_ptr<MemoryPool> pool;
  c10::DataPtr memory;
  size_t bytes;
};

MemoryPool::~MemoryPool() {
  close();
}

void MemoryPool::close() {
  std::lock_guard lock(mutex_);
  unused_.clear();
  unused_bytes_ = 0;
  keep_bytes_ = 0;
}

void MemoryPool::abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
}

c10::DataPtr MemoryPool::allocate(size_t bytes) {
  if (!device_.is_cpu()) {
    const c10::DeviceGuard guard(device_);  // LibTorch's allocators take the current device
    return c10::GetAllocator(device_.type())->allocate(bytes);
  }
  auto block = std::make_unique<Block>(Block{shared_from_this(), {}, bytes});
  {
    std::lock_guard lock(mutex_);
    auto found = unused_.lower_bound(bytes);
    if (found != unused_.end() && found->first <= bytes + bytes / 4) {
      block->bytes = found->first;
      block->memory = std::move(found->second);
      unused_bytes_ -= found->first;
      unused_.erase(found);
    }
  }
  if (!block->memory) block->memory = c10::GetAllocator(c10::kCPU)->allocate(bytes);
  void* data = block->memory.get();
  return {data, block.release(), &MemoryPool::give_back, device_};
}

at::Tensor MemoryPool::empty(int64_t numel, at::TensorOptions options) {
  const size_t bytes = static_cast<size_t>(numel) * options.dtype().itemsize();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, allocate(bytes),
                                                       /*allocator=*/nullptr, /*resizable=*/false);
  return at::empty({0}, options).set_(at::Storage(std::move(storage)), 0, {numel}, {1});
}

void MemoryPool::give_back(void* context) {
  std::unique_ptr<Block> block(static_cast<Block*>(context));
  block->pool->keep_or_free(std::move(block->memory), block->bytes);
}

void MemoryPool::keep_or_free(c10::DataPtr memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (abandoned_) {
    static_cast<void>(new c10::DataPtr(std::move(memory)));  // for ever
    return;
  }
  if (unused_bytes_ + bytes > keep_bytes_) return;
  unused_.emplace(bytes, std::move(memory));
  unused_bytes_ += bytes;
}

}  // namespace fsdp2
