#include "plugin/engine/c10d_communicator.hpp"

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
                                                             const std::string& group) {
  if (!backend) throw Error(ErrorCode::kInvalidArgument, "the communicator is null: no c10d::Backend was given");
  FailureReports reports(std::move(store), group, backend->getRank(), backend->getSize());
  std::shared_ptr<C10dCommunicator> communicator;
  if (backend->getBackendName() == GlooCommunicator::kBackendName) {
    communicator = std::make_shared<GlooCommunicator>(std::move(backend), timeout);
  } else {
    communicator.reset(new C10dCommunicator(std::move(backend), timeout));
  }
  communicator->reports_ = std::move(reports);
  return communicator;
}

std::shared_ptr<Communicator> C10dCommunicator::from_process_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                                   c10::DeviceType device, Timeout timeout) {
  if (!group) throw Error(ErrorCode::kInvalidArgument, "the communicator is null: no c10d::ProcessGroup was given");
  c10::intrusive_ptr<c10d::Backend> backend;
  try {
    backend = group->getBackend(device);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, "the process group has no backend for " +
                                                 c10::DeviceTypeName(device, true) +
                                                 " tensors: " + exception_text(error));
  }
  auto communicator = from_backend(std::move(backend), timeout, group->getStore(), group->getGroupName());
  static_cast<C10dCommunicator&>(*communicator).owner_ = group;
  return communicator;
}

C10dCommunicator::C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Timeout timeout)
    : backend_(std::move(backend)), timeout_(timeout) {}

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
  return start_collective(rank(), operation, bytes, start);
}

namespace {

// Only NCCL has AVG; elsewhere the sum is divided once afterwards.
bool has_average(const c10d::Backend& backend) {
  return backend.getBackendName() == "nccl";
}

c10d::ReduceOp mean_or_sum(const c10d::Backend& backend) {
  return has_average(backend) ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
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

std::unique_ptr<Request> C10dCommunicator::reduce_scatter_mean(at::Tensor output, at::Tensor input) {
  return request("reduce_scatter", static_cast<int64_t>(input.nbytes()), [&]() -> std::function<void()> {
    c10d::ReduceScatterOptions options;
    options.reduceOp = mean_or_sum(*backend_);
    auto work = backend_->_reduce_scatter_base(output, input, options);
    return [backend = backend_, timeout = timeout_, work, output, input]() mutable {
      wait_for(*backend, work, timeout);
      if (!has_average(*backend)) output.div_(backend->getSize());
    };
  });
}

std::unique_ptr<Request> C10dCommunicator::all_reduce_mean(at::Tensor tensor) {
  return request("all_reduce", static_cast<int64_t>(tensor.nbytes()), [&]() -> std::function<void()> {
    c10d::AllreduceOptions options;
    options.reduceOp = mean_or_sum(*backend_);
    std::vector<at::Tensor> tensors{tensor};
    auto work = backend_->allreduce(tensors, options);
    return [backend = backend_, timeout = timeout_, work, tensor]() mutable {
      wait_for(*backend, work, timeout);
      if (!has_average(*backend)) tensor.div_(backend->getSize());
    };
  });
}

}  // namespace fsdp2
