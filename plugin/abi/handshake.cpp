#include "plugin/abi/handshake.hpp"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/headeronly/version.h>
#ifdef USE_C10D_NCCL
#include <nccl.h>
#include <torch/csrc/cuda/nccl.h>
#endif

#include <algorithm>
#include <mutex>
#include <vector>

#include "plugin/abi/loaded_images.hpp"
#include "plugin/script/operators.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

struct Log {
  fsdp2_log_function function;
  void* user;
  bool operator==(const Log&) const = default;
};

struct State {
  std::mutex mutex;
  int64_t initialized = 0;
  int64_t engines = 0;
  bool operators_are_ours = false;
};

// Apart from the state: while a line is written its function may make any call, and once shutdown has returned it must
// not run any more.
struct Logs {
  std::recursive_mutex mutex;
  std::vector<Log> logs;
};

State& state() {
  static auto& state = *new State;  // compiled graphs may outlive static objects
  return state;
}

Logs& all_logs() {
  static auto& logs = *new Logs;
  return logs;
}

const void* torch_entry() {
  return reinterpret_cast<const void*>(&aoti_torch_abi_version);
}

std::string torch_version_text(uint64_t version) {
  const auto byte = [version](int shift) { return std::to_string((version >> shift) & 0xff); };
  return "LibTorch " + byte(56) + "." + byte(48) + "." + byte(40);
}

[[noreturn]] void mismatch(const std::string& sentence) {
  throw Error(ErrorCode::kVersionMismatch, own_image() + ": " + sentence);
}

void check_abi(const fsdp2_host_info& host) {
  if (host.abi_major == FSDP2_ABI_MAJOR) return;
  const auto text = [](uint32_t major, uint32_t minor) { return std::to_string(major) + "." + std::to_string(minor); };
  mismatch("this plugin speaks ABI " + text(FSDP2_ABI_MAJOR, FSDP2_ABI_MINOR) + ", the host " +
           text(host.abi_major, host.abi_minor) + ": rebuild the host with this plugin's plugin.h");
}

void check_torch(const fsdp2_host_info& host) {
  const uint64_t running = aoti_torch_abi_version();
  if (running != TORCH_ABI_VERSION) {
    mismatch("built for " + torch_version_text(TORCH_ABI_VERSION) + ", but it found " + torch_version_text(running) +
             " in " + image_of(torch_entry()) + ": rebuild the plugin, or start the host with the right LibTorch");
  }
  if (host.torch_abi_version != 0 && host.torch_abi_version != TORCH_ABI_VERSION) {
    mismatch("built for " + torch_version_text(TORCH_ABI_VERSION) + ", the host for " +
             torch_version_text(host.torch_abi_version) + ": rebuild one of them");
  }
  if (host.torch_abi_entry != nullptr && host.torch_abi_entry != torch_entry()) {
    mismatch("the host uses the LibTorch in " + image_of(host.torch_abi_entry) + ", the plugin that in " +
             image_of(torch_entry()) +
             ": two LibTorch in one process cannot share objects; load the plugin into the "
             "host's own namespace and set no RUNPATH on it");
  }
}

void check_nccl() {
#ifdef USE_C10D_NCCL
  constexpr uint64_t kBuilt = (uint64_t{NCCL_MAJOR} << 32) | (uint64_t{NCCL_MINOR} << 16);
  const uint64_t torch_has = torch::cuda::nccl::version() & ~uint64_t{0xffff};
  if (torch_has == kBuilt) return;
  const auto text = [](uint64_t version) {
    return std::to_string(version >> 32) + "." + std::to_string((version >> 16) & 0xffff);
  };
  mismatch("built with the headers of NCCL " + text(kBuilt) + ", LibTorch with NCCL " + text(torch_has) +
           ": rebuild the plugin against the NCCL of this LibTorch");
#endif
}

// Two images would share LibTorch's one table of operators: graphs made by one would run the other's code.
void check_no_other_image() {
  const auto name = c10::Symbol::fromQualString(kPreOperator);
  if (torch::jit::getAllOperatorsFor(name).empty()) return;
  std::string others;
  for (const std::string& path : other_plugin_images()) others += (others.empty() ? "" : ", ") + path;
  throw Error(ErrorCode::kAlreadyLoaded, "another image of fsdp2-plugin is active in this process: " +
                                             (others.empty() ? std::string("one linked into the program") : others) +
                                             "; this one is " + own_image() + ". Load one file only, by one path");
}

}  // namespace

void initialize(const fsdp2_host_info& host) {
  {
    State& s = state();
    const std::scoped_lock lock(s.mutex);
    check_abi(host);
    check_torch(host);
    if (!s.operators_are_ours) {
      check_nccl();
      check_no_other_image();
      register_operators();
      s.operators_are_ours = true;
    }
    ++s.initialized;
  }
  if (host.log != nullptr) {
    Logs& all = all_logs();
    const std::scoped_lock lock(all.mutex);
    all.logs.push_back({host.log, host.log_user});
  }
}

void shutdown(const fsdp2_host_info& host) {
  {
    State& s = state();
    const std::scoped_lock lock(s.mutex);
    if (s.initialized == 0) throw Error(ErrorCode::kFailedPrecondition, "shutdown without initialize");
    if (s.initialized == 1 && s.engines > 0) {
      throw Error(ErrorCode::kFailedPrecondition, "shutdown while " + std::to_string(s.engines) +
                                                      (s.engines == 1 ? " engine lives" : " engines live") +
                                                      ": release every engine first");
    }
    --s.initialized;
  }
  Logs& all = all_logs();
  const std::scoped_lock lock(all.mutex);
  const auto found = std::find(all.logs.rbegin(), all.logs.rend(), Log{host.log, host.log_user});
  if (found != all.logs.rend()) all.logs.erase(std::next(found).base());
}

void require_initialized(const char* call) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (s.initialized == 0) {
    throw Error(ErrorCode::kFailedPrecondition, std::string(call) + " before initialize");
  }
}

void log_to_host(bool warning, const std::string& text) noexcept {
  Logs& all = all_logs();
  const std::scoped_lock lock(all.mutex);
  if (all.logs.empty()) return;
  const Log log = all.logs.back();
  log.function(log.user, warning ? FSDP2_LOG_WARNING : FSDP2_LOG_INFO, text.data(), text.size());
}

EngineCount::EngineCount() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (s.initialized == 0) throw Error(ErrorCode::kFailedPrecondition, "shard before initialize");
  ++s.engines;
}

EngineCount::~EngineCount() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  --s.engines;
}

}  // namespace fsdp2
