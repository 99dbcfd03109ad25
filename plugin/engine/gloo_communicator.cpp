#include "plugin/engine/gloo_communicator.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "plugin/engine/bytes.hpp"
#include "plugin/engine/exception_text.hpp"
#include "plugin/engine/rank_mean.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// Gloo then needs to know no dtype.
at::Tensor host_bytes(const at::Tensor& tensor) {
  if (tensor.device().type() != c10::DeviceType::CPU) {
    throw Error(ErrorCode::kInvalidArgument, "Gloo moves CPU tensors only; got one on " + tensor.device().str());
  }
  return as_bytes(tensor);
}

void require(bool condition, const char* text) {
  if (!condition) throw Error(ErrorCode::kInternal, text);
}

/// Elements [begin, begin + size) of a flat tensor belong to a rank. Equal parts, the last ones shorter.
struct Part {
  int64_t begin;
  int64_t size;
};

Part part_of(int64_t elements, int64_t ranks, int64_t rank) {
  const int64_t width = (elements + ranks - 1) / ranks;
  const int64_t begin = std::min(rank * width, elements);
  return {begin, std::min(width, elements - begin)};
}

constexpr uint64_t kStart = 0xcbf29ce484222325;

/// FNV-1a, the same on every rank.
uint64_t mixed(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

/// Messages in flight between this rank and its peers, all under one tag.
class GlooCommunicator::Exchange {
 public:
  Exchange(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout, int tag)
      : backend_(std::move(backend)), timeout_(timeout), tag_(tag) {}

  // Receives are posted first and from the nearest lower rank on, sends to the nearest higher rank on: then no two
  // ranks send to the same peer at the same moment.
  template <typename Receive, typename Send>
  void start(const Receive& receive_buffer, const Send& send_buffer) {
    const int size = backend_->getSize();
    const int rank = backend_->getRank();
    for (int step = 1; step < size; ++step)
      receive(receive_buffer((rank + size - step) % size), (rank + size - step) % size);
    for (int step = 1; step < size; ++step) send(send_buffer((rank + step) % size), (rank + step) % size);
  }

  void wait() {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    for (auto& message : messages_) {
      Timeout left = kNoTimeout;
      if (timeout_ > Timeout::zero()) {
        left = std::max(Timeout(1), std::chrono::duration_cast<Timeout>(deadline - std::chrono::steady_clock::now()));
      }
      of_peer(message.peer, [&] {
        if (!message.work->wait(left)) throw std::runtime_error("the wait was aborted");
      });
    }
    messages_.clear();
  }

 private:
  struct Message {
    int peer;
    c10::intrusive_ptr<c10d::Work> work;
  };

  void receive(at::Tensor bytes, int peer) {
    if (bytes.numel() == 0) return;
    std::vector<at::Tensor> tensors{std::move(bytes)};
    of_peer(peer, [&] { messages_.push_back({peer, backend_->recv(tensors, peer, tag_)}); });
  }

  void send(at::Tensor bytes, int peer) {
    if (bytes.numel() == 0) return;
    std::vector<at::Tensor> tensors{std::move(bytes)};
    of_peer(peer, [&] { messages_.push_back({peer, backend_->send(tensors, peer, tag_)}); });
  }

  /// Names the peer in the message of a failure.
  template <typename Action>
  static void of_peer(int peer, const Action& action) {
    try {
      action();
    } catch (const std::exception& error) {
      throw Error(ErrorCode::kCommunication,
                  "connection to rank " + std::to_string(peer) + ": " + exception_text(error));
    }
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  Timeout timeout_;
  int tag_;
  std::vector<Message> messages_;
};

/// This rank's part of a sum: the others' contributions as they arrive, and the own one where it lies.
struct GlooCommunicator::Contributions {
  at::Tensor buffer;  // one place for each other rank
  at::Tensor own;     // bytes
  int64_t rank;
  int64_t size;

  [[nodiscard]] at::Tensor of(int64_t peer) const {
    if (peer == rank) return own;
    return buffer.narrow(0, (peer < rank ? peer : peer - 1) * own.numel(), own.numel());
  }

  void mean_into(at::Tensor output) const {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> parts;
    for (int64_t peer = 0; peer < size; ++peer) parts.push_back(of(peer).view(output.scalar_type()));
    rank_mean(output, parts);
  }
};

GlooCommunicator::GlooCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout)
    : C10dCommunicator(std::move(backend), timeout), scratch_(std::make_shared<ScratchBytes>()) {}

void GlooCommunicator::announce(std::string_view purpose) {
  purpose_ = mixed(kStart, purpose);
}

// Above the small tags that hosts use for messages of their own. Were ranks in different collectives to meet under one
// tag, they would take each other's data; and where sizes differ, Gloo's own thread ends the process.
int GlooCommunicator::next_tag(std::string_view operation, int64_t bytes) {
  constexpr uint32_t kFirst = 0x46530000;
  const uint64_t hash = mixed(mixed(purpose_, operation), std::to_string(bytes));
  const auto kind = static_cast<uint32_t>((hash ^ (hash >> 32)) & 0xffff);
  return static_cast<int>(kFirst + (kind << 8) + (collectives_++ & 0xff));
}

std::unique_ptr<Request> GlooCommunicator::all_gather(at::Tensor output, at::Tensor input) {
  return request("all_gather", static_cast<int64_t>(output.nbytes()), [&]() -> std::function<void()> {
    const at::Tensor whole = host_bytes(output);
    at::Tensor own = host_bytes(input);
    require(whole.numel() == own.numel() * size(), "all_gather: the output is not as large as the inputs of all ranks");
    auto part = [&](int64_t of) { return whole.narrow(0, of * own.numel(), own.numel()); };
    Exchange exchange(backend_, timeout_, next_tag("all_gather", whole.numel()));
    exchange.start([&](int peer) { return part(peer); }, [&](int /*peer*/) { return own; });
    const at::Tensor target = part(rank());
    if (target.const_data_ptr() != own.const_data_ptr()) target.copy_(own);
    return [exchange = std::move(exchange)]() mutable { exchange.wait(); };
  });
}

GlooCommunicator::Contributions GlooCommunicator::contributions(const at::Tensor& own) {
  return {scratch_->take(own.numel() * (size() - 1)), own, rank(), size()};
}

std::unique_ptr<Request> GlooCommunicator::reduce_scatter_mean(at::Tensor output, at::Tensor input) {
  return request("reduce_scatter", static_cast<int64_t>(input.nbytes()), [&]() -> std::function<void()> {
    require(output.is_floating_point(), "reduce_scatter: a mean needs a floating dtype");
    require(input.numel() == output.numel() * size() && input.scalar_type() == output.scalar_type(),
            "reduce_scatter: the input is not as large as the outputs of all ranks");
    const at::Tensor whole = host_bytes(input);
    const at::Tensor target = host_bytes(output);
    const auto part = [&](int64_t of) { return whole.narrow(0, of * target.numel(), target.numel()); };
    const Contributions sum = contributions(part(rank()));
    Exchange exchange(backend_, timeout_, next_tag("reduce_scatter", whole.numel()));
    exchange.start([&](int peer) { return sum.of(peer); }, part);
    return [exchange = std::move(exchange), scratch = scratch_, sum, output]() mutable {
      exchange.wait();
      sum.mean_into(output);
      scratch->give_back(sum.buffer);
    };
  });
}

// A reduce-scatter and an all-gather inside the tensor itself; each rank sums one part, so all end with the same bits.
std::unique_ptr<Request> GlooCommunicator::all_reduce_mean(at::Tensor tensor) {
  return request("all_reduce", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
    require(tensor.is_floating_point(), "all_reduce: a mean needs a floating dtype");
    const auto part = [whole = host_bytes(tensor), width = static_cast<int64_t>(tensor.element_size()),
                       elements = tensor.numel(), size = size()](int64_t of) {
      const Part range = part_of(elements, size, of);
      return whole.narrow(0, range.begin * width, range.size * width);
    };
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    const Contributions sum = contributions(part(rank()));
    Exchange reduce(backend_, timeout_, next_tag("all_reduce", bytes));
    reduce.start([&](int peer) { return sum.of(peer); }, part);
    Exchange gather(backend_, timeout_, next_tag("all_reduce", bytes));
    return [reduce = std::move(reduce), gather = std::move(gather), scratch = scratch_, sum, part, tensor]() mutable {
      reduce.wait();
      sum.mean_into(sum.own.view(tensor.scalar_type()));
      scratch->give_back(sum.buffer);
      gather.start(part, [&](int /*peer*/) { return sum.own; });
      gather.wait();
    };
  });
}

}  // namespace fsdp2
