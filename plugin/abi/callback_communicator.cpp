#include "plugin/abi/callback_communicator.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "plugin/engine/bytes.hpp"
#include "plugin/engine/collective_request.hpp"
#include "plugin/engine/rank_sum.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

using Start = decltype(fsdp2_communicator::all_gather);
using Clock = std::chrono::steady_clock;

void* current_stream(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return nullptr;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()).native_handle();
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "fsdp2_communicator." + what);
}

void require_floating(const at::Tensor& tensor, const char* operation) {
  if (!tensor.is_floating_point())
    throw Error(ErrorCode::kInternal, std::string(operation) + ": a sum needs a floating dtype");
}

/// Equal parts of received bytes, in rank order, as `like` has its elements.
at::Tensor sum_of_parts(const at::Tensor& received, const at::Tensor& like, int64_t ranks, double divisor) {
  const at::NoGradGuard no_grad;
  const auto bytes = static_cast<int64_t>(like.nbytes());
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank)
    parts.push_back(received.narrow(0, rank * bytes, bytes).view(like.scalar_type()));
  at::Tensor sum = parts[0];  // in place: an own part, which nobody else reads
  rank_sum(sum, parts, divisor);
  return sum;
}

}  // namespace

/// The host's table, and the rules of calling it.
struct CallbackCommunicator::Link {
  fsdp2_communicator table;
  Timeout timeout;
  std::thread::id thread;
  std::string fault;  // of an earlier collective: what the transport would do next is unknown

  void require_usable() const {
    if (!fault.empty()) throw Error(ErrorCode::kCommunication, "an earlier collective failed: " + fault);
    if (table.one_thread != 0 && std::this_thread::get_id() != thread) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          "the host's transport may be called by one thread only, that of shard(), and this is another one; run " +
              std::string("forward and backward there, or initialise the transport for several threads ") +
              "(MPI_THREAD_SERIALIZED)");
    }
  }

  [[noreturn]] void fail(const std::string& text) {
    fault = text;
    throw Error(ErrorCode::kCommunication, text);
  }
};

/// One call of the host's, and the tensors it reads and writes.
class CallbackCommunicator::Transfer {
 public:
  Transfer(std::shared_ptr<Link> link, Start start, at::Tensor output, at::Tensor input, int64_t bytes)
      : link_(std::move(link)), tensors_{std::move(output), std::move(input)} {
    link_->require_usable();
    if (bytes == 0) return;
    const char* fault = start(link_->table.context, tensors_[0].mutable_data_ptr(), tensors_[1].const_data_ptr(), bytes,
                              current_stream(tensors_[0]), &request_);
    if (fault != nullptr) {
      request_ = nullptr;
      lose_tensors();
      link_->fail(fault);
    }
  }
  ~Transfer() {
    if (request_ != nullptr) lose_tensors();
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Testing is what makes an MPI library move data, so it goes on without a pause at first.
  void wait() {
    constexpr int kEager = 200;
    constexpr auto kPause = std::chrono::microseconds(50);
    constexpr auto kPatience = std::chrono::milliseconds(2);
    const auto began = Clock::now();
    for (int tests = 0; request_ != nullptr; ++tests) {
      link_->require_usable();
      int32_t done = 0;
      if (const char* fault = link_->table.test(link_->table.context, request_, &done)) link_->fail(fault);
      if (done != 0) {
        request_ = nullptr;
        return;
      }
      if (tests < kEager) continue;
      const auto waited = Clock::now() - began;
      if (link_->timeout > Timeout::zero() && waited > link_->timeout) {
        link_->fail("the other ranks did not answer within " +
                    std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) +
                    " s: one has left, hangs, or is in another call");
      }
      if (waited < kPatience) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

 private:
  /// They may still be written to: better lost than somebody else's.
  void lose_tensors() { static_cast<void>(new std::vector<at::Tensor>(std::move(tensors_))); }

  std::shared_ptr<Link> link_;
  std::vector<at::Tensor> tensors_;
  void* request_ = nullptr;
};

CallbackCommunicator::CallbackCommunicator(const fsdp2_communicator& table, Timeout timeout, int64_t world_rank)
    : name_(table.name != nullptr ? table.name : "callbacks"),
      world_rank_(world_rank < 0 ? table.rank : world_rank),
      sent_(std::make_shared<ScratchBytes>()),
      received_(std::make_shared<ScratchBytes>()) {
  if (table.world_size < 1) refuse("world_size is " + std::to_string(table.world_size) + ", expected at least 1");
  if (table.rank < 0 || table.rank >= table.world_size) {
    refuse("rank is " + std::to_string(table.rank) + ", expected 0 to " + std::to_string(table.world_size - 1));
  }
  if (table.all_gather == nullptr) refuse("all_gather is null");
  if (table.all_to_all == nullptr) refuse("all_to_all is null");
  if (table.test == nullptr) refuse("test is null");
  if (table.reserved != 0) refuse("reserved is not 0");
  link_ = std::make_shared<Link>(Link{table, timeout, std::this_thread::get_id(), ""});
  link_->table.name = nullptr;  // the host's, and copied
}

int64_t CallbackCommunicator::rank() const {
  return link_->table.rank;
}
int64_t CallbackCommunicator::size() const {
  return link_->table.world_size;
}

std::unique_ptr<Request> CallbackCommunicator::all_gather(at::Tensor output, at::Tensor input) {
  return start_collective(
      world_rank(), "all_gather", static_cast<int64_t>(output.nbytes()), [&]() -> std::function<void()> {
        if (output.nbytes() != input.nbytes() * static_cast<size_t>(size()))
          throw Error(ErrorCode::kInternal, "all_gather: the output is not as large as the inputs of all ranks");
        auto transfer = std::make_shared<Transfer>(link_, link_->table.all_gather, as_bytes(output), as_bytes(input),
                                                   static_cast<int64_t>(input.nbytes()));
        return [transfer] { transfer->wait(); };
      });
}

std::unique_ptr<Request> CallbackCommunicator::reduce_scatter(at::Tensor output, at::Tensor input, double divisor) {
  return start_collective(
      world_rank(), "reduce_scatter", static_cast<int64_t>(input.nbytes()), [&]() -> std::function<void()> {
        require_floating(output, "reduce_scatter");
        if (input.nbytes() != output.nbytes() * static_cast<size_t>(size()) ||
            input.scalar_type() != output.scalar_type())
          throw Error(ErrorCode::kInternal, "reduce_scatter: the input is not as large as the outputs of all ranks");
        const at::Tensor received = received_->take(static_cast<int64_t>(input.nbytes()), input.device());
        auto transfer = std::make_shared<Transfer>(link_, link_->table.all_to_all, received, as_bytes(input),
                                                   static_cast<int64_t>(output.nbytes()));
        return [transfer, received, output, scratch = received_, ranks = size(), divisor] {
          transfer->wait();
          const at::NoGradGuard no_grad;
          output.view(-1).copy_(sum_of_parts(received, output, ranks, divisor));
          scratch->give_back(received);
        };
      });
}

// A part from rank 0 to each rank, and an all-gather of them: the others' parts of the first step are not read.
std::unique_ptr<Request> CallbackCommunicator::broadcast(at::Tensor tensor) {
  return start_collective(
      world_rank(), "broadcast", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
        const at::NoGradGuard no_grad;
        const at::Tensor target = as_bytes(tensor);
        const int64_t part = (target.numel() + size() - 1) / size();
        const at::Tensor sent = sent_->take(part * size(), tensor.device());
        const at::Tensor received = received_->take(part * size(), tensor.device());
        sent.narrow(0, 0, target.numel()).copy_(target);
        auto scatter = std::make_shared<Transfer>(link_, link_->table.all_to_all, received, sent, part);
        return
            [scatter, sent, received, target, part, link = link_, sent_scratch = sent_, received_scratch = received_] {
              scatter->wait();
              Transfer gather(link, link->table.all_gather, sent, received.narrow(0, 0, part), part);
              gather.wait();
              target.copy_(sent.narrow(0, 0, target.numel()));
              sent_scratch->give_back(sent);
              received_scratch->give_back(received);
            };
      });
}

std::shared_ptr<Communicator> CallbackCommunicator::split(const std::vector<int64_t>& members) {
  if (link_->table.split == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "fsdp2_communicator.split is null: a mesh of two dimensions needs it, or the groups themselves as " +
                    std::string("shard_communicator and replicate_communicator; reshard_after_forward with a number ") +
                    "of ranks needs it");
  }
  link_->require_usable();
  fsdp2_communicator part{};
  part.struct_size = sizeof(part);
  const char* fault =
      link_->table.split(link_->table.context, members.data(), static_cast<int64_t>(members.size()), &part);
  if (fault != nullptr) link_->fail(fault);
  const auto place = std::find(members.begin(), members.end(), rank()) - members.begin();
  if (part.world_size != static_cast<int64_t>(members.size()) || part.rank != place) {
    refuse("split gave rank " + std::to_string(part.rank) + " of " + std::to_string(part.world_size) + ", expected " +
           std::to_string(place) + " of " + std::to_string(members.size()));
  }
  return std::make_shared<CallbackCommunicator>(part, link_->timeout, world_rank_);
}

// A reduce-scatter and an all-gather over equal parts, the last one padded; each rank sums one part, so all end with
// the same bits.
std::unique_ptr<Request> CallbackCommunicator::all_reduce(at::Tensor tensor, double divisor) {
  return start_collective(
      world_rank(), "all_reduce", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
        require_floating(tensor, "all_reduce");
        const at::NoGradGuard no_grad;
        const auto width = static_cast<int64_t>(tensor.element_size());
        const int64_t part = (tensor.numel() + size() - 1) / size() * width;
        const at::Tensor sent = sent_->take(part * size(), tensor.device());
        const at::Tensor received = received_->take(part * size(), tensor.device());
        const at::Tensor source = as_bytes(tensor);
        sent.narrow(0, source.numel(), part * size() - source.numel()).zero_();
        sent.narrow(0, 0, source.numel()).copy_(source);
        auto reduce = std::make_shared<Transfer>(link_, link_->table.all_to_all, received, sent, part);
        return [reduce, sent, received, source, part, link = link_, all_gather = link_->table.all_gather, tensor,
                sent_scratch = sent_, received_scratch = received_, divisor] {
          reduce->wait();
          const at::NoGradGuard grad_off;
          const at::Tensor own = sent.narrow(0, link->table.rank * part, part);
          own.view(tensor.scalar_type())
              .copy_(sum_of_parts(received, own.view(tensor.scalar_type()), link->table.world_size, divisor));
          Transfer gather(link, all_gather, sent, own, part);
          gather.wait();
          source.copy_(sent.narrow(0, 0, source.numel()));
          sent_scratch->give_back(sent);
          received_scratch->give_back(received);
        };
      });
}

}  // namespace fsdp2
