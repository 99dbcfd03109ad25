#include "plugin/engine/flat_buffer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace fsdp2 {
namespace {

// A tensor whose storage knows its size but has no memory yet.
at::Tensor without_memory(at::TensorOptions options, int64_t numel) {
  const size_t bytes = static_cast<size_t>(numel) * options.dtype().itemsize();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       at::DataPtr(nullptr, options.device()), /*allocator=*/nullptr,
                                                       /*resizable=*/false);
  return at::empty({0}, options).set_(at::Storage(std::move(storage)), 0, {numel}, {1});
}

}  // namespace

FlatBuffer::FlatBuffer(at::TensorOptions options, int64_t part, int64_t parts, bool gathers)
    : shard_(at::zeros({part}, options)),
      whole_(gathers ? without_memory(options, part * parts) : alias(shard_, 0, {part})),
      gathers_(gathers),
      is_whole_(!gathers) {}

int64_t FlatBuffer::bytes() const {
  return static_cast<int64_t>(whole_.storage().nbytes());
}

void FlatBuffer::allocate(MemoryPool& pool) {
  if (is_whole_) return;
  auto* storage = whole_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(pool.allocate(storage->nbytes()));
  is_whole_ = true;
}

std::unique_ptr<Request> FlatBuffer::start_gather(Communicator& communicator) {
  return communicator.all_gather(whole_, shard_);
}

void FlatBuffer::free() {
  if (!gathers_ || !is_whole_) return;
  whole_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, whole_.device()));
  is_whole_ = false;
}

at::Tensor FlatBuffer::alias(const at::Tensor& base, int64_t offset, at::IntArrayRef shape) {
  at::Tensor result = at::empty({0}, base.options());
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return result.set_(base.storage(), base.storage_offset() + offset, shape, strides);
}

}  // namespace fsdp2
