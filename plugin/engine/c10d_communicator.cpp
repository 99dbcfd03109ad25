#include "plugin/engine/c10d_communicator.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cmath>
#include <utility>

#include "plugin/engine/collective_request.hpp"
#include "plugin/engine/exception_text.hpp"
#include "plugin/engine/gloo_communicator.hpp"
#include "registry/error.hpp"

namespace fsdp2 {

Timeout timeout_from_seconds(double seconds) {
  constexpr double kLongest = 1e9;  // 30 years; what fits in every clock
  if (!(seconds > 0)) return Timeout::zero();
  return Timeout(static_cast<int64_t>(std::ceil(std::fmin(seconds, kLongest) * 1000)));
}

std::shared_ptr<Communicator> C10dCommunicator::from_backend(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout,
                                                             c10::intrusive_ptr<c10d::Store> store,
                                                             const std::string& group, int64_t world_rank) {
  if (!backend) throw Error(ErrorCode::kInvalidArgument, "the communicator is null: no c10d::Backend was given");
  FailureReports reports(store, group, backend->getRank(), backend->getSize());
  std::shared_ptr<C10dCommunicator> communicator;
  if (backend->getBackendName() == GlooCommunicator::kBackendName) {
    communicator = std::make_shared<GlooCommunicator>(std::move(backend), timeout);
  } else {
    communicator.reset(new C10dCommunicator(std::move(backend), timeout));
  }
  if (world_rank >= 0) communicator->world_rank_ = world_rank;
  communicator->store_ = std::move(store);
  communicator->reports_ = std::move(reports);
  return communicator;
}

std::shared_ptr<Communicator> C10dCommunicator::from_process_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                                   c10::DeviceType device, Timeout timeout,
                                                                   int64_t world_rank) {
  if (!group) throw Error(ErrorCode::kInvalidArgument, "the communicator is null: no c10d::ProcessGroup was given");
  c10::intrusive_ptr<c10d::Backend> backend;
  try {
    backend = group->getBackend(device);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, "the process group has no backend for " +
                                                 c10::DeviceTypeName(device, true) +
                                                 " tensors: " + exception_text(error));
  }
  auto communicator = from_backend(std::move(backend), timeout, group->getStore(), group->getGroupName(), world_rank);
  static_cast<C10dCommunicator&>(*communicator).owner_ = group;
  return communicator;
}

C10dCommunicator::C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout)
    : backend_(std::move(backend)), timeout_(timeout), world_rank_(backend_->getRank()) {}

C10dCommunicator::C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, const C10dCommunicator& whole)
    : backend_(std::move(backend)),
      timeout_(whole.timeout_),
      world_rank_(whole.world_rank_),
      store_(whole.store_),
      reports_(whole.reports_),
      owner_(whole.owner_) {}

int64_t C10dCommunicator::rank() const {
  return backend_->getRank();
}
int64_t C10dCommunicator::size() const {
  return backend_->getSize();
}
std::string C10dCommunicator::whereabouts(const std::string& own) noexcept {
  return reports_ ? reports_->exchange(own) : "";
}
std::string C10dCommunicator::name() const {
  return backend_->getBackendName();
}

std::unique_ptr<Request> C10dCommunicator::request(const char* operation, int64_t bytes,
                                                   const std::function<std::function<void()>()>& start) const {
  return start_collective(world_rank(), operation, bytes, start);
}

namespace {

// Only NCCL has AVG; elsewhere, and for other divisors, each rank divides its own input first: then no sum overflows.
bool has_average(const c10d::Backend& backend) {
  return backend.getBackendName() == "nccl";
}

c10d::ReduceOp divided_sum(const c10d::Backend& backend, at::Tensor& input, double divisor) {
  if (has_average(backend) && divisor == backend.getSize()) return c10d::ReduceOp::AVG;
  if (divisor != 1) {
    const at::NoGradGuard no_grad;
    input.div_(divisor);
  }
  return c10d::ReduceOp::SUM;
}

/// Waits as the group's own time allows: with a time of its own NCCL's wait would block the host until the collective
/// is done, instead of making the stream wait.
void wait_for(const c10d::Backend& backend, const c10::intrusive_ptr<c10d::Work>& work, Timeout timeout) {
  if (!work->wait(has_average(backend) ? kNoTimeout : timeout)) throw std::runtime_error("the collective was aborted");
}

}  // namespace

std::unique_ptr<Request> C10dCommunicator::all_gather(at::Tensor output, at::Tensor input) {
  return request("all_gather", static_cast<int64_t>(output.nbytes()), [&]() -> std::function<void()> {
    auto work = backend_->_allgather_base(output, input);
    return [backend = backend_, timeout = timeout_, work, output, input] { wait_for(*backend, work, timeout); };
  });
}

std::unique_ptr<Request> C10dCommunicator::reduce_scatter(at::Tensor output, at::Tensor input, double divisor) {
  return request("reduce_scatter", static_cast<int64_t>(input.nbytes()), [&]() -> std::function<void()> {
    c10d::ReduceScatterOptions options;
    options.reduceOp = divided_sum(*backend_, input, divisor);
    auto work = backend_->_reduce_scatter_base(output, input, options);
    return [backend = backend_, timeout = timeout_, work, output, input] { wait_for(*backend, work, timeout); };
  });
}

std::unique_ptr<Request> C10dCommunicator::all_reduce(at::Tensor tensor, double divisor) {
  return request("all_reduce", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
    c10d::AllreduceOptions options;
    options.reduceOp = divided_sum(*backend_, tensor, divisor);
    std::vector<at::Tensor> tensors{tensor};
    auto work = backend_->allreduce(tensors, options);
    return [backend = backend_, timeout = timeout_, work, tensor] { wait_for(*backend, work, timeout); };
  });
}

std::unique_ptr<Request> C10dCommunicator::broadcast(at::Tensor tensor) {
  return request("broadcast", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
    std::vector<at::Tensor> tensors{tensor};
    auto work = backend_->broadcast(tensors, c10d::BroadcastOptions());
    return [backend = backend_, timeout = timeout_, work, tensor] { wait_for(*backend, work, timeout); };
  });
}

// In the parent's own store a split would meet the parent's keys and hang.
std::shared_ptr<Communicator> C10dCommunicator::split(const std::vector<int64_t>& members) {
  if (!store_) {
    throw Error(
        ErrorCode::kUnsupported,
        "a c10d::Backend of " + name() +
            " cannot be split without the store through which its ranks have met: give a c10d::ProcessGroup, or "
            "the groups of the mesh as shard_communicator and replicate_communicator (reshard_after_forward with a "
            "number "
            "of ranks needs a c10d::ProcessGroup)");
  }
  const std::vector<int> ranks(members.begin(), members.end());
  auto store = c10::make_intrusive<c10d::PrefixStore>(
      "fsdp2_plugin/split_" + std::to_string(splits_++) + "/from_" + std::to_string(ranks.front()), store_);
  try {
    auto part = backend_->split(store, ranks, backend_->getBackendOptions());
    return std::shared_ptr<Communicator>(new C10dCommunicator(std::move(part), *this));
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kCommunication,
                "rank " + std::to_string(world_rank()) + ": the group could not be split: " + exception_text(error),
                {.rank = world_rank()});
  }
}

}  // namespace fsdp2
