#include "plugin/engine/flat_buffer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "plugin/engine/dtype.hpp"

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

class FlatBuffer::Gather final : public Request {
 public:
  /// `own`: what this rank gives; the shard itself is given from where it lies, if its dtype is that of the whole.
  Gather(const FlatBuffer& buffer, at::Tensor own, at::Tensor whole, Communicator& communicator, MemoryPool& pool)
      : buffer_(buffer),
        whole_(std::move(whole)),
        parts_(buffer.copies_out() ? pool.empty(buffer.gathered_numel(), whole_.options()) : whole_) {
    if (!buffer.gathers_ || !own.is_same(buffer.shard_) || own.scalar_type() != whole_.scalar_type()) {
      const int64_t rank = buffer.gathers_ ? communicator.rank() : 0;
      own = parts_.narrow(0, rank * own.numel(), own.numel()).copy_(own);
    }
    if (buffer.gathers_) gather_ = communicator.all_gather(parts_, own);
  }

  void wait() override {
    if (gather_) gather_->wait();
    if (buffer_.copies_out()) copy_out();
    parts_ = at::Tensor();
  }

 private:
  void copy_out() const {
    const at::Tensor parts = parts_.view({buffer_.parts_, -1});
    for (const Copy& copy : buffer_.copies_) {
      const at::Tensor chunks = parts.narrow(1, copy.from.offset, copy.from.size);
      whole_.narrow(0, copy.offset, chunks.numel()).view(chunks.sizes()).copy_(chunks);
    }
  }

  const FlatBuffer& buffer_;
  at::Tensor whole_;
  at::Tensor parts_;                 // of all ranks, one after the other; the whole itself where nothing is copied out
  std::unique_ptr<Request> gather_;  // goes before the memory that it may still write into
};

FlatBuffer::FlatBuffer(c10::Device device, const PlannedUnit& unit, size_t index, int64_t parts, bool gathers)
    : parts_(parts), gathers_(gathers) {
  const PlannedBuffer& planned = unit.buffers[index];
  const auto options = at::TensorOptions().device(device);
  shard_ = at::zeros({planned.part}, options.dtype(to_torch(planned.dtype)));
  is_whole_ = !gathers && !planned.cast;
  const int64_t copied_out = planned.copied_out;
  whole_ = is_whole_ ? alias(shard_, 0, shard_.sizes())
                     : without_memory(options.dtype(to_torch(compute_dtype(planned))),
                                      copied_out > 0 ? copied_out : gathered_numel());
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

std::unique_ptr<Request> FlatBuffer::start_gather(const at::Tensor& own, const at::Tensor& whole,
                                                  Communicator& communicator, MemoryPool& pool) const {
  return std::make_unique<Gather>(*this, own, whole, communicator, pool);
}

at::Tensor FlatBuffer::parts_of(int64_t first, int64_t count, MemoryPool& pool) const {
  const int64_t part = shard_.numel();
  at::Tensor parts = pool.empty(count * part, whole_.options());
  if (!copies_out()) return parts.copy_(whole_.narrow(0, first * part, count * part));
  for (const Copy& copy : copies_) {
    const int64_t size = copy.from.size;
    const at::Tensor chunks = whole_.narrow(0, copy.offset + first * size, count * size);
    parts.view({count, part}).narrow(1, copy.from.offset, size).copy_(chunks.view({count, size}));
  }
  return parts;
}

void FlatBuffer::free() {
  if (shard_is_whole() || !is_whole_) return;
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
