#include "plugin/engine/c10d_environment.hpp"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <algorithm>
#include <fsdp2/launch_environment.hpp>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "plugin/engine/exception_text.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

LaunchEnvironment read_environment() {
  try {
    if (auto environment = launch_environment()) return *environment;
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
  throw Error(ErrorCode::kInvalidArgument,
              "no launcher has started this process: RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK, PMI_RANK and "
              "SLURM_PROCID are not set. Start the program with torchrun, mpirun or srun, set RANK, WORLD_SIZE, "
              "MASTER_ADDR and MASTER_PORT, or give a communicator");
}

bool is_loopback(std::string_view address) {
  return address.empty() || address == "localhost" || address == "::1" || address.starts_with("127.");
}

/// The store at the master's address, one a process. It is never given back: rank 0's may be the server that the others
/// still read from, and a second group would have to listen on the same port.
c10::intrusive_ptr<c10d::Store> shared_store(const LaunchEnvironment& env, Timeout timeout) {
  static std::mutex mutex;
  static auto& stores = *new std::map<std::pair<std::string, int>, c10::intrusive_ptr<c10d::Store>>();
  const std::scoped_lock lock(mutex);
  auto& store = stores[{env.master_address, env.master_port}];
  if (!store) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(env.master_port);
    options.isServer = env.rank == 0 && !env.agent_keeps_store;
    options.multiTenant = true;   // the host may listen there as well
    options.waitWorkers = false;  // the group's own meeting waits for everyone
    if (timeout > Timeout::zero()) options.timeout = timeout;
    store = c10::make_intrusive<c10d::TCPStore>(env.master_address, options);
  }
  return store;
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kMost) text += " and " + std::to_string(ranks.size() - kMost) + " more";
  return text;
}

/// Each rank signs in, so that the one that does not come, or comes twice, can be named. The last one to sign lets all
/// go on: each waits for one key, however many ranks there are.
void sign_in(c10d::Store& store, const LaunchEnvironment& env, Timeout timeout) {
  const auto limit = timeout > Timeout::zero() ? timeout : Timeout(kBackendDefaultTimeout);
  const auto key = [](int rank) { return "rank_" + std::to_string(rank) + "_is_here"; };
  if (store.add(key(env.rank), 1) > 1) {
    throw Error(ErrorCode::kCommunication,
                "two processes have RANK " + std::to_string(env.rank) + " of " + std::to_string(env.world_size));
  }
  if (store.add("ranks_here", 1) == env.world_size) store.set("all_here", std::vector<uint8_t>{1});
  try {
    store.wait({"all_here"}, limit);
  } catch (const std::exception&) {
    std::vector<int> missing;
    for (int rank = 0; rank < env.world_size; ++rank) {
      if (!store.check({key(rank)})) missing.push_back(rank);
    }
    if (missing.empty()) throw;
    throw Error(ErrorCode::kCommunication,
                ranks_text(missing) + " of " + std::to_string(env.world_size) + " did not come within " +
                    std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) + " s");
  }
}

/// Keys of one group: apart from those of the host, of earlier attempts, and of earlier groups of this process (which
/// every rank makes in the same order).
c10::intrusive_ptr<c10d::Store> group_store(const LaunchEnvironment& env, Timeout timeout) {
  static std::mutex mutex;
  static int groups = 0;
  if (env.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  auto store = shared_store(env, timeout);
  const std::scoped_lock lock(mutex);
  auto own = c10::make_intrusive<c10d::PrefixStore>(
      "fsdp2_plugin/attempt_" + std::to_string(env.restart) + "/group_" + std::to_string(groups++), std::move(store));
  sign_in(*own, env, timeout);
  return own;
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& env,
                                            Timeout timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  const auto limit = timeout > Timeout::zero() ? timeout : Timeout(kBackendDefaultTimeout);
  auto options = Gloo::Options::create(limit);
  if (process_environment("GLOO_SOCKET_IFNAME").value_or("").empty() && is_loopback(env.master_address)) {
    // The machine's own name may not resolve, or to an address that is down.
    options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options = Gloo::Options::create_default(limit);  // GLOO_SOCKET_IFNAME, else the address of the machine's name
  }
  return c10::make_intrusive<Gloo>(store, env.rank, env.world_size, options);
}

c10::intrusive_ptr<c10d::Backend> make_nccl([[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store,
                                            [[maybe_unused]] const LaunchEnvironment& env,
                                            [[maybe_unused]] c10::Device device, [[maybe_unused]] Timeout timeout) {
#ifdef USE_C10D_NCCL
  using Nccl = c10d::ProcessGroupNCCL;
  auto options = Nccl::Options::create();
  if (timeout > Timeout::zero()) options->timeout = timeout;
  auto backend = c10::make_intrusive<Nccl>(store, env.rank, env.world_size, options);
  backend->setBoundDeviceId(device);
  return backend;
#else
  throw Error(ErrorCode::kUnsupported, "this build of fsdp2-plugin has no NCCL: use backend \"gloo\", or a CUDA build");
#endif
}

Error did_not_meet(const LaunchEnvironment& env, std::string cause) {
  const std::string place =
      env.world_size == 1 ? "" : " at " + env.master_address + ":" + std::to_string(env.master_port);
  if (cause.find("EADDRINUSE") != std::string::npos) {
    cause = "the port is in use: by another program, or by a second process with RANK 0 (" + cause + ")";
  }
  if (env.rank != 0 && cause.find("connect") != std::string::npos) {
    cause = "rank 0, or the agent of torchrun, does not listen there (" + cause + ")";
  }
  return {ErrorCode::kCommunication,
          "rank " + std::to_string(env.rank) + ": the " + std::to_string(env.world_size) + " ranks did not meet" +
              place + ": " + cause,
          {.rank = env.rank}};
}

}  // namespace

std::shared_ptr<Communicator> communicator_from_environment(const std::string& backend, c10::Device device,
                                                            Timeout timeout) {
  const std::string chosen = !backend.empty() ? backend : device.is_cpu() ? "gloo" : "nccl";
  if (chosen != "gloo" && chosen != "nccl") {
    throw Error(ErrorCode::kInvalidArgument, "unknown backend \"" + chosen + "\": expected \"gloo\" or \"nccl\"");
  }
  if ((chosen == "gloo") != device.is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument,
                "backend \"" + chosen + "\" cannot move the parameters, which are on " + device.str());
  }
  const LaunchEnvironment env = read_environment();
  try {
    auto store = group_store(env, timeout);
    auto group = chosen == "gloo" ? make_gloo(store, env, timeout) : make_nccl(store, env, device, timeout);
    return C10dCommunicator::from_backend(std::move(group), timeout, std::move(store));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCommunication) throw;
    throw did_not_meet(env, error.what());
  } catch (const std::exception& error) {
    throw did_not_meet(env, exception_text(error));
  }
}

}  // namespace fsdp2
