#include "plugin/engine/gloo_communicator.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "plugin/engine/bytes.hpp"
#include "plugin/engine/exception_text.hpp"
#include "plugin/engine/rank_sum.hpp"
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
  Exchange(const GlooCommunicator& ranks, int tag)
      : backend_(ranks.backend_), members_(ranks.members_), rank_(ranks.rank_), timeout_(ranks.timeout_), tag_(tag) {}

  // Receives are posted first and from the nearest lower rank on, sends to the nearest higher rank on: then no two
  // ranks send to the same peer at the same moment.
  template <typename Receive, typename Send>
  void start(const Receive& receive_buffer, const Send& send_buffer) {
    const auto size = static_cast<int64_t>(members_.size());
    for (int64_t step = 1; step < size; ++step) {
      const int64_t peer = (rank_ + size - step) % size;
      receive(receive_buffer(peer), members_[peer]);
    }
    for (int64_t step = 1; step < size; ++step) {
      const int64_t peer = (rank_ + step) % size;
      send(send_buffer(peer), members_[peer]);
    }
  }

  /// From the first of the ranks to the others.
  void start_from_first(const at::Tensor& bytes) {
    if (rank_ != 0) return receive(bytes, members_.front());
    for (size_t peer = 1; peer < members_.size(); ++peer) send(bytes, members_[peer]);
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
  std::vector<int> members_;
  int64_t rank_;
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

  void sum_into(at::Tensor output, double divisor) const {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> parts;
    for (int64_t peer = 0; peer < size; ++peer) parts.push_back(of(peer).view(output.scalar_type()));
    rank_sum(output, parts, divisor);
  }
};

GlooCommunicator::GlooCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout)
    : C10dCommunicator(std::move(backend), timeout),
      members_(backend_->getSize()),
      rank_(backend_->getRank()),
      scratch_(std::make_shared<ScratchBytes>()) {
  std::iota(members_.begin(), members_.end(), 0);
}

GlooCommunicator::GlooCommunicator(const GlooCommunicator& whole, std::vector<int> members)
    : C10dCommunicator(whole.backend_, whole),
      members_(std::move(members)),
      rank_(std::find(members_.begin(), members_.end(), whole.backend_->getRank()) - members_.begin()),
      group_(kStart),
      scratch_(whole.scratch_) {
  for (const int member : members_) group_ = mixed(group_, std::to_string(member) + ",");
}

std::shared_ptr<Communicator> GlooCommunicator::split(const std::vector<int64_t>& members) {
  std::vector<int> ranks;
  for (const int64_t member : members) ranks.push_back(members_.at(member));
  return std::shared_ptr<Communicator>(new GlooCommunicator(*this, std::move(ranks)));
}

void GlooCommunicator::announce(std::string_view purpose) {
  purpose_ = mixed(kStart, purpose);
}

// Above the small tags that hosts use for messages of their own. Were ranks in different collectives to meet under one
// tag, they would take each other's data; and where sizes differ, Gloo's own thread ends the process.
int GlooCommunicator::next_tag(std::string_view operation, int64_t bytes) {
  constexpr uint32_t kFirst = 0x46530000;
  const uint64_t hash = mixed(mixed(purpose_ ^ group_, operation), std::to_string(bytes));
  const auto kind = static_cast<uint32_t>((hash ^ (hash >> 32)) & 0xffff);
  return static_cast<int>(kFirst + (kind << 8) + (collectives_++ & 0xff));
}

std::unique_ptr<Request> GlooCommunicator::all_gather(at::Tensor output, at::Tensor input) {
  return request("all_gather", static_cast<int64_t>(output.nbytes()), [&]() -> std::function<void()> {
    const at::Tensor whole = host_bytes(output);
    at::Tensor own = host_bytes(input);
    require(whole.numel() == own.numel() * size(), "all_gather: the output is not as large as the inputs of all ranks");
    auto part = [&](int64_t of) { return whole.narrow(0, of * own.numel(), own.numel()); };
    Exchange exchange(*this, next_tag("all_gather", whole.numel()));
    exchange.start(part, [&](int64_t /*peer*/) { return own; });
    const at::Tensor target = part(rank());
    if (target.const_data_ptr() != own.const_data_ptr()) target.copy_(own);
    return [exchange = std::move(exchange)]() mutable { exchange.wait(); };
  });
}

GlooCommunicator::Contributions GlooCommunicator::contributions(const at::Tensor& own) {
  return {scratch_->take(own.numel() * (size() - 1)), own, rank(), size()};
}

std::unique_ptr<Request> GlooCommunicator::reduce_scatter(at::Tensor output, at::Tensor input, double divisor) {
  return request("reduce_scatter", static_cast<int64_t>(input.nbytes()), [&]() -> std::function<void()> {
    require(output.is_floating_point(), "reduce_scatter: a sum needs a floating dtype");
    require(input.numel() == output.numel() * size() && input.scalar_type() == output.scalar_type(),
            "reduce_scatter: the input is not as large as the outputs of all ranks");
    const at::Tensor whole = host_bytes(input);
    const at::Tensor target = host_bytes(output);
    const auto part = [&](int64_t of) { return whole.narrow(0, of * target.numel(), target.numel()); };
    const Contributions sum = contributions(part(rank()));
    Exchange exchange(*this, next_tag("reduce_scatter", whole.numel()));
    exchange.start([&](int64_t peer) { return sum.of(peer); }, part);
    return [exchange = std::move(exchange), scratch = scratch_, sum, output, divisor]() mutable {
      exchange.wait();
      sum.sum_into(output, divisor);
      scratch->give_back(sum.buffer);
    };
  });
}

// A reduce-scatter and an all-gather inside the tensor itself; each rank sums one part, so all end with the same bits.
std::unique_ptr<Request> GlooCommunicator::all_reduce(at::Tensor tensor, double divisor) {
  return request("all_reduce", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
    require(tensor.is_floating_point(), "all_reduce: a sum needs a floating dtype");
    const auto part = [whole = host_bytes(tensor), width = static_cast<int64_t>(tensor.element_size()),
                       elements = tensor.numel(), size = size()](int64_t of) {
      const Part range = part_of(elements, size, of);
      return whole.narrow(0, range.begin * width, range.size * width);
    };
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    const Contributions sum = contributions(part(rank()));
    Exchange reduce(*this, next_tag("all_reduce", bytes));
    reduce.start([&](int64_t peer) { return sum.of(peer); }, part);
    Exchange gather(*this, next_tag("all_reduce", bytes));
    return [reduce = std::move(reduce), gather = std::move(gather), scratch = scratch_, sum, part, tensor,
            divisor]() mutable {
      reduce.wait();
      sum.sum_into(sum.own.view(tensor.scalar_type()), divisor);
      scratch->give_back(sum.buffer);
      gather.start(part, [&](int64_t /*peer*/) { return sum.own; });
      gather.wait();
    };
  });
}

std::unique_ptr<Request> GlooCommunicator::broadcast(at::Tensor tensor) {
  return request("broadcast", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
    const at::Tensor bytes = host_bytes(tensor);
    Exchange exchange(*this, next_tag("broadcast", bytes.numel()));
    exchange.start_from_first(bytes);
    return [exchange = std::move(exchange)]() mutable { exchange.wait(); };
  });
}

}  // namespace fsdp2
