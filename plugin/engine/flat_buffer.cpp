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

/// Gathers into memory of its own and makes the whole of it.
class FlatBuffer::CopyOut final : public Request {
 public:
  CopyOut(const FlatBuffer& buffer, Communicator& communicator, MemoryPool& pool)
      : buffer_(buffer),
        gathered_(pool.empty(buffer.gathered_numel(), buffer.whole_.options())),
        gather_(communicator.all_gather(gathered_, buffer.shard_)) {}

  void wait() override {
    gather_->wait();
    const at::Tensor parts = gathered_.view({buffer_.parts_, -1});
    for (const Copy& copy : buffer_.copies_) {
      const at::Tensor chunks = parts.narrow(1, copy.from.offset, copy.from.size);
      buffer_.whole_.narrow(0, copy.offset, chunks.numel()).view(chunks.sizes()).copy_(chunks);
    }
    gathered_ = at::Tensor();
  }

 private:
  const FlatBuffer& buffer_;
  at::Tensor gathered_;
  std::unique_ptr<Request> gather_;  // goes before the memory that it may still write into
};

FlatBuffer::FlatBuffer(at::TensorOptions options, const PlannedUnit& unit, size_t index, int64_t parts, bool gathers)
    : parts_(parts), shard_(at::zeros({unit.buffers[index].part}, options)), gathers_(gathers), is_whole_(!gathers) {
  const int64_t copied_out = unit.buffers[index].copied_out;
  whole_ = gathers ? without_memory(options, copied_out > 0 ? copied_out : gathered_numel())
                   : alias(shard_, 0, shard_.sizes());
  if (copied_out == 0) return;
  for (const PlannedParameter& parameter : unit.parameters) {
    if (parameter.buffer == index) copies_.push_back({*parameter.chunk, parameter.offset});
  }
}

int64_t FlatBuffer::bytes() const {
  return static_cast<int64_t>(whole_.storage().nbytes());
}

void FlatBuffer::allocate(MemoryPool& pool) {
  if (is_whole_) return;
  auto* storage = whole_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(pool.allocate(storage->nbytes()));
  is_whole_ = true;
}

std::unique_ptr<Request> FlatBuffer::start_gather(Communicator& communicator, MemoryPool& pool) {
  if (copies_out()) return std::make_unique<CopyOut>(*this, communicator, pool);
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
