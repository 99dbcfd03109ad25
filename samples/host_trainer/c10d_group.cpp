#include "samples/host_trainer/c10d_group.hpp"

#include <torch/cuda.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <stdexcept>

namespace trainer {
namespace {

using Limit = std::chrono::milliseconds;

constexpr std::chrono::minutes kTimeout{5};  // of a collective: rank 0 may be writing a large file

#ifdef USE_C10D_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif

/// Each rank signs in, so that the one that does not come can be named.
void sign_in(c10d::Store& store, const RankEnvironment& e, Limit limit) {
  const auto key = [](int rank) { return "rank_" + std::to_string(rank) + "_is_here"; };
  if (store.add(key(e.rank), 1) > 1)
    throw std::runtime_error("two processes have RANK " + std::to_string(e.rank) + '.');
  if (store.add("ranks_here", 1) == e.world) store.set("all_here", std::vector<uint8_t>{1});
  try {
    store.wait({"all_here"}, limit);
  } catch (const std::exception&) {
    constexpr size_t kMostText = 60;
    std::string missing;
    for (int rank = 0; rank < e.world && missing.size() < kMostText; ++rank)
      if (!store.check({key(rank)})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    if (missing.empty()) throw;
    throw std::runtime_error("rank " + missing + " of " + std::to_string(e.world) + " did not come within " +
                             std::to_string(limit.count() / 1000) + " s.");
  }
}

c10::intrusive_ptr<c10d::Store> store_at_master(const RankEnvironment& e, Limit limit) {
  c10d::TCPStoreOptions options;
  options.port = e.master_port;
  options.isServer = e.rank == 0 && !e.store_is_kept;
  options.numWorkers = static_cast<size_t>(e.world);
  options.waitWorkers = false;  // they sign in
  options.timeout = limit;
  if (options.isServer && e.listen_socket >= 0) options.masterListenFd = e.listen_socket;
  auto store = c10::make_intrusive<c10d::TCPStore>(e.master_address, options);
  auto own = c10::make_intrusive<c10d::PrefixStore>("fsdp2-train/" + e.restart, store);
  sign_in(*own, e, limit);
  return own;
}

c10::intrusive_ptr<c10d::Store> meet(const RankEnvironment& e, Limit limit) {
  if (e.world == 1) return c10::make_intrusive<c10d::HashStore>();
  std::string cause;
  try {
    return store_at_master(e, limit);
  } catch (const c10::Error& error) {
    cause = error.what_without_backtrace();
  } catch (const std::exception& error) {
    cause = error.what();
  }
  if (cause.find("EADDRINUSE") != std::string::npos)
    cause = "the port is in use: by another program, or by a second process with RANK 0.";
  throw std::runtime_error("rank " + std::to_string(e.rank) + " of " + std::to_string(e.world) +
                           " did not meet the others at " + e.master_address + ':' + std::to_string(e.master_port) +
                           ": " + cause);
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const RankEnvironment& e, Limit limit) {
  auto options = c10d::ProcessGroupGloo::Options::create(kTimeout);
  // The machine's own name may not resolve, and its device may be slow, where nobody from outside takes part.
  const bool local = e.world == e.local_world || e.master_address == "127.0.0.1" || e.master_address == "localhost";
  options->devices.push_back(local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                   : c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(meet(e, limit), e.rank, e.world, options);
}

c10::intrusive_ptr<c10d::Backend> make_nccl([[maybe_unused]] const RankEnvironment& e, [[maybe_unused]] Limit limit) {
#ifdef USE_C10D_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = kTimeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(meet(e, limit), e.rank, e.world, options);
#else
  return nullptr;
#endif
}

bool use_nccl(const RankEnvironment& e, const std::string& backend) {
  if (backend == "gloo") return false;
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  const bool enough = gpus > e.local_rank && gpus >= e.local_world;
  if (backend == "nccl") {
    if (!kHasNccl)
      throw std::runtime_error("--backend nccl: this build has no NCCL; it was built without a CUDA toolkit.");
    if (!enough)
      throw std::runtime_error("--backend nccl: every rank needs a GPU of its own; this machine shows " +
                               std::to_string(gpus) + " for " + std::to_string(e.local_world) + " ranks.");
  }
  return kHasNccl && enough;
}

}  // namespace

C10dGroup::C10dGroup(const RankEnvironment& environment, const std::string& backend, Limit limit)
    : RankGroup(environment) {
  if (use_nccl(environment, backend)) {
    device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(environment.local_rank));
    backend_ = make_nccl(environment, limit);
  } else {
    backend_ = make_gloo(environment, limit);
  }
}

at::Tensor C10dGroup::all_reduce(at::Tensor tensor, const std::string& what) {
  if (world() == 1) return tensor;
  std::vector<at::Tensor> tensors{tensor.to(device_)};
  std::string fault;
  try {
    backend_->allreduce(tensors)->wait();
  } catch (const c10::Error& e) {
    fault = e.what_without_backtrace();
  } catch (const std::exception& e) {  // Gloo's own
    fault = e.what();
  }
  if (!fault.empty())
    throw std::runtime_error("all-reduce of " + what + " on rank " + std::to_string(rank()) +
                             " failed; another rank has left or hangs: " + fault);
  return tensors[0].cpu();
}

}  // namespace trainer
