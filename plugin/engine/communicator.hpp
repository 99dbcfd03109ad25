// The transport between ranks, as the engine sees it. One small interface; plugin/engine/c10d_communicator has the
// answer for Gloo and NCCL.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp2 {

/// A collective in flight.
class Request {
 public:
  virtual ~Request() = default;
  /// Returns when the result may be used (on CUDA: by work on the current stream). Throws fsdp2::Error
  /// (kCommunication) when a peer failed or did not answer in time.
  virtual void wait() = 0;
};

/// Every start is collective: all ranks call it in the same order with tensors of equal size. Tensors are contiguous
/// and must live until wait() returned. Starts throw fsdp2::Error (kCommunication) as wait() does.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t size() const = 0;
  /// This process's rank in the communicator that this one was split from: for messages.
  [[nodiscard]] virtual int64_t world_rank() const { return rank(); }
  /// "gloo", "nccl": for messages and choices by transport.
  [[nodiscard]] virtual std::string name() const = 0;

  /// What the next collectives are for (a unit's path). Where the transport can, ranks that are in different
  /// collectives then time out instead of taking each other's data. Local.
  virtual void announce(std::string_view purpose) = 0;

  /// After a collective has failed: tells the others that this rank was in `own`, and returns what they were in, ""
  /// where that cannot be known. Not collective, does not throw.
  [[nodiscard]] virtual std::string whereabouts(const std::string& /*own*/) noexcept { return ""; }

  /// output[r * input.numel() + i] = rank r's input[i]; any dtype. `input` may be the own part of `output`.
  virtual std::unique_ptr<Request> all_gather(at::Tensor output, at::Tensor input) = 0;
  /// output[i] = sum over ranks of input[rank() * output.numel() + i], divided by `divisor`; floating dtypes. `input`
  /// may be overwritten.
  virtual std::unique_ptr<Request> reduce_scatter(at::Tensor output, at::Tensor input, double divisor) = 0;
  /// tensor = sum over ranks divided by `divisor`, in place; floating dtypes.
  virtual std::unique_ptr<Request> all_reduce(at::Tensor tensor, double divisor) = 0;

  /// tensor = rank 0's, bit by bit; any dtype.
  virtual std::unique_ptr<Request> broadcast(at::Tensor tensor) = 0;

  /// The communicator of `members`: ranks of this one, ascending, this rank among them. All ranks call it in the same
  /// order, each with the group that it belongs to. Collective where the transport makes the groups. Throws Error
  /// (kUnsupported) where it has no groups.
  [[nodiscard]] virtual std::shared_ptr<Communicator> split(const std::vector<int64_t>& members) = 0;
};

}  // namespace fsdp2
