#include "plugin/engine/c10d_environment.hpp"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "plugin/engine/exception_text.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

std::string required(const char* name) {
  if (auto value = variable(name)) return *value;
  throw Error(
      ErrorCode::kInvalidArgument,
      std::string("the environment variable ") + name +
          " is not set: start the program with torchrun, set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or give "
          "a communicator");
}

int number(const char* name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error(ErrorCode::kInvalidArgument, std::string("the environment variable ") + name + " is \"" + text +
                                                 "\": expected a whole number from " + std::to_string(least) + " to " +
                                                 std::to_string(most));
  }
  return value;
}

struct Environment {
  int rank;
  int size;
  std::string address;  // empty in a world of 1
  int port = 0;
  bool agent_keeps_store = false;
  int attempt = 0;
};

Environment read_environment() {
  constexpr int kMost = 1 << 20;
  Environment env{};
  env.size = number("WORLD_SIZE", required("WORLD_SIZE"), 1, kMost);
  env.rank = number("RANK", required("RANK"), 0, env.size - 1);
  if (env.size == 1) return env;
  env.address = required("MASTER_ADDR");
  env.port = number("MASTER_PORT", required("MASTER_PORT"), 1, 65535);
  env.agent_keeps_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";  // torchrun's own comparison
  if (auto attempt = variable("TORCHELASTIC_RESTART_COUNT")) {
    env.attempt = number("TORCHELASTIC_RESTART_COUNT", *attempt, 0, kMost);
  }
  return env;
}

bool is_loopback(std::string_view address) {
  return address.empty() || address == "localhost" || address == "::1" || address.starts_with("127.");
}

/// The store at the master's address, one a process. It is never given back: rank 0's may be the server that the others
/// still read from, and a second group would have to listen on the same port.
c10::intrusive_ptr<c10d::Store> shared_store(const Environment& env, Timeout timeout) {
  static std::mutex mutex;
  static auto& stores = *new std::map<std::pair<std::string, int>, c10::intrusive_ptr<c10d::Store>>();
  const std::scoped_lock lock(mutex);
  auto& store = stores[{env.address, env.port}];
  if (!store) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(env.port);
    options.isServer = env.rank == 0 && !env.agent_keeps_store;
    options.multiTenant = true;   // the host may listen there as well
    options.waitWorkers = false;  // the group's own meeting waits for everyone
    if (timeout > Timeout::zero()) options.timeout = timeout;
    store = c10::make_intrusive<c10d::TCPStore>(env.address, options);
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
void sign_in(c10d::Store& store, const Environment& env, Timeout timeout) {
  const auto limit = timeout > Timeout::zero() ? timeout : Timeout(kBackendDefaultTimeout);
  const auto key = [](int rank) { return "rank_" + std::to_string(rank) + "_is_here"; };
  if (store.add(key(env.rank), 1) > 1) {
    throw Error(ErrorCode::kCommunication,
                "two processes have RANK " + std::to_string(env.rank) + " of " + std::to_string(env.size));
  }
  if (store.add("ranks_here", 1) == env.size) store.set("all_here", std::vector<uint8_t>{1});
  try {
    store.wait({"all_here"}, limit);
  } catch (const std::exception&) {
    std::vector<int> missing;
    for (int rank = 0; rank < env.size; ++rank) {
      if (!store.check({key(rank)})) missing.push_back(rank);
    }
    if (missing.empty()) throw;
    throw Error(ErrorCode::kCommunication,
                ranks_text(missing) + " of " + std::to_string(env.size) + " did not come within " +
                    std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) + " s");
  }
}

/// Keys of one group: apart from those of the host, of earlier attempts, and of earlier groups of this process (which
/// every rank makes in the same order).
c10::intrusive_ptr<c10d::Store> group_store(const Environment& env, Timeout timeout) {
  static std::mutex mutex;
  static int groups = 0;
  if (env.size == 1) return c10::make_intrusive<c10d::HashStore>();
  auto store = shared_store(env, timeout);
  const std::scoped_lock lock(mutex);
  auto own = c10::make_intrusive<c10d::PrefixStore>(
      "fsdp2_plugin/attempt_" + std::to_string(env.attempt) + "/group_" + std::to_string(groups++), std::move(store));
  sign_in(*own, env, timeout);
  return own;
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const Environment& env, Timeout timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  const auto limit = timeout > Timeout::zero() ? timeout : Timeout(kBackendDefaultTimeout);
  auto options = Gloo::Options::create(limit);
  if (!variable("GLOO_SOCKET_IFNAME") && is_loopback(env.address)) {
    // The machine's own name may not resolve, or to an address that is down.
    options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options = Gloo::Options::create_default(limit);  // GLOO_SOCKET_IFNAME, else the address of the machine's name
  }
  return c10::make_intrusive<Gloo>(group_store(env, timeout), env.rank, env.size, options);
}

c10::intrusive_ptr<c10d::Backend> make_nccl([[maybe_unused]] const Environment& env,
                                            [[maybe_unused]] c10::Device device, [[maybe_unused]] Timeout timeout) {
#ifdef USE_C10D_NCCL
  using Nccl = c10d::ProcessGroupNCCL;
  auto options = Nccl::Options::create();
  if (timeout > Timeout::zero()) options->timeout = timeout;
  auto backend = c10::make_intrusive<Nccl>(group_store(env, timeout), env.rank, env.size, options);
  backend->setBoundDeviceId(device);
  return backend;
#else
  throw Error(ErrorCode::kUnsupported, "this build of fsdp2-plugin has no NCCL: use backend \"gloo\", or a CUDA build");
#endif
}

Error did_not_meet(const Environment& env, std::string cause) {
  const std::string place = env.size == 1 ? "" : " at " + env.address + ":" + std::to_string(env.port);
  if (cause.find("EADDRINUSE") != std::string::npos) {
    cause = "the port is in use: by another program, or by a second process with RANK 0 (" + cause + ")";
  }
  if (env.rank != 0 && cause.find("connect") != std::string::npos) {
    cause = "rank 0, or the agent of torchrun, does not listen there (" + cause + ")";
  }
  return {ErrorCode::kCommunication,
          "rank " + std::to_string(env.rank) + ": the " + std::to_string(env.size) + " ranks did not meet" + place +
              ": " + cause,
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
  const Environment env = read_environment();
  try {
    auto group = chosen == "gloo" ? make_gloo(env, timeout) : make_nccl(env, device, timeout);
    return C10dCommunicator::from_backend(std::move(group), timeout);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCommunication) throw;
    throw did_not_meet(env, error.what());
  } catch (const std::exception& error) {
    throw did_not_meet(env, exception_text(error));
  }
}

}  // namespace fsdp2
