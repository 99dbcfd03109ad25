// One flat buffer of a unit: this rank's shard, and the memory of the whole that comes and goes.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "plugin/engine/communicator.hpp"
#include "plugin/engine/memory_pool.hpp"

namespace fsdp2 {

/// Storage of the whole buffer is one object for ever; only the memory under it is freed and put back, so tensors that
/// autograd saved stay valid. With one part the shard *is* the whole and nothing ever moves.
class FlatBuffer {
 public:
  /// `part` elements a rank, `parts` ranks. `gathers` is false where the shard is the whole.
  FlatBuffer(at::TensorOptions options, int64_t part, int64_t parts, bool gathers);

  /// [part], this rank's elements. Zero where nothing was written.
  [[nodiscard]] const at::Tensor& shard() const { return shard_; }
  /// [part * parts]. Has memory only while is_whole().
  [[nodiscard]] const at::Tensor& whole() const { return whole_; }
  [[nodiscard]] bool is_whole() const { return is_whole_; }
  [[nodiscard]] bool gathers() const { return gathers_; }
  /// Bytes of the whole.
  [[nodiscard]] int64_t bytes() const;

  /// Puts memory under whole(), if there is none.
  void allocate(MemoryPool& pool);
  /// Starts the all-gather of the shards into whole(), which must have memory. Collective.
  [[nodiscard]] std::unique_ptr<Request> start_gather(Communicator& communicator);
  /// Frees the memory under whole(). Nothing to do where the shard is the whole.
  void free();

  /// A tensor of that shape over elements [offset, offset + numel) of `base`, with its own version counter: not a view,
  /// so it may be a leaf and `zero_grad` may detach it.
  static at::Tensor alias(const at::Tensor& base, int64_t offset, at::IntArrayRef shape);

 private:
  at::Tensor shard_;
  at::Tensor whole_;
  bool gathers_;
  bool is_whole_;
};

}  // namespace fsdp2
