// One flat buffer of a unit: this rank's shard, and the memory of the whole that comes and goes.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "plugin/engine/communicator.hpp"
#include "plugin/engine/memory_pool.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// Storage of the whole buffer is one object for ever; only the memory under it is freed and put back, so tensors that
/// autograd saved stay valid. With one part in the dtype of the whole the shard *is* the whole and nothing ever moves.
class FlatBuffer {
 public:
  /// Buffer `index` of a planned unit, cut into `parts`. `gathers` is false where each rank holds all of it.
  FlatBuffer(c10::Device device, const PlannedUnit& unit, size_t index, int64_t parts, bool gathers);

  /// [part], this rank's elements, in the stored dtype. Zero where nothing was written.
  [[nodiscard]] const at::Tensor& shard() const { return shard_; }
  /// The full parameters, in the compute dtype. Has memory only while is_whole().
  [[nodiscard]] const at::Tensor& whole() const { return whole_; }
  [[nodiscard]] bool is_whole() const { return is_whole_; }
  [[nodiscard]] bool gathers() const { return gathers_; }
  [[nodiscard]] bool casts() const { return shard_.scalar_type() != whole_.scalar_type(); }
  [[nodiscard]] bool shard_is_whole() const { return !gathers_ && !casts(); }
  /// Bytes of the whole.
  [[nodiscard]] int64_t bytes() const;
  /// Elements of all ranks' parts, which is what collectives move.
  [[nodiscard]] int64_t gathered_numel() const { return shard_.numel() * parts_; }
  /// Whether gathered parts are not the whole, but are copied out into it.
  [[nodiscard]] bool copies_out() const { return !copies_.empty(); }

  /// Puts memory under whole(), if there is none.
  void allocate(MemoryPool& pool);
  /// Starts the gather of what each rank gives, cast to the dtype of `whole`: its shard, or its share of all parts
  /// among fewer ranks (parts_of(), not needed after this). When it was waited for, all is in `whole`: whole() with
  /// memory, or a tensor of its size. Parts that are copied out lie in memory of the pool until then. Collective where
  /// gathers().
  [[nodiscard]] std::unique_ptr<Request> start_gather(const at::Tensor& own, const at::Tensor& whole,
                                                      Communicator& communicator, MemoryPool& pool) const;
  /// Of the whole, the parts of `count` ranks from `first` on, one after the other, in memory of the pool.
  [[nodiscard]] at::Tensor parts_of(int64_t first, int64_t count, MemoryPool& pool) const;
  /// Frees the memory under whole(). Nothing to do where the shard is the whole.
  void free();

  /// A tensor of that shape over elements [offset, offset + numel) of `base`, with its own version counter: not a view,
  /// so it may be a leaf and `zero_grad` may detach it.
  static at::Tensor alias(const at::Tensor& base, int64_t offset, at::IntArrayRef shape);

 private:
  struct Copy {
    PlannedChunk from;   // in every part
    int64_t offset = 0;  // of the chunks, one after the other, in the whole
  };
  class Gather;

  int64_t parts_;
  std::vector<Copy> copies_;
  at::Tensor shard_;
  at::Tensor whole_;
  bool gathers_;
  bool is_whole_;
};

}  // namespace fsdp2
