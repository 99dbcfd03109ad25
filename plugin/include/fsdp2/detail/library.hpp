// What plugin.hpp stands on: the exception, and the library opened, proven to fit this program, and initialized.
#ifndef FSDP2_DETAIL_LIBRARY_HPP
#define FSDP2_DETAIL_LIBRARY_HPP

#include <c10/core/TensorImpl.h>
#include <dlfcn.h>
#include <fsdp2/plugin.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/headeronly/version.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp2 {
// Hosts built against another version of this header may be in the same process.
inline namespace v0_1 {

/// A fault. what() is a whole sentence that already names place, key and rank; the fields are for programs.
class Exception : public std::runtime_error {
 public:
  Exception(fsdp2_code code, const std::string& message) : std::runtime_error(message), code_(code) {}

  /// One of FSDP2_INVALID_ARGUMENT ... FSDP2_INTERNAL.
  [[nodiscard]] fsdp2_code code() const noexcept { return code_; }

  // Where the fault lies, as text; "" where unknown. Line and column count from 1.
  std::string file, line, column, key, module, parameter, rank;
  std::string nearest;  // the nearest valid name

 private:
  fsdp2_code code_;
};

/// Receives remarks: one line, without an end of line. May be called by any thread; must not throw.
using LogCallback = std::function<void(fsdp2_log_level level, const std::string& text)>;

namespace detail {

inline std::string torch_version(uint64_t version) {
  const auto byte = [version](int shift) { return std::to_string((version >> shift) & 0xff); };
  return "LibTorch " + byte(56) + "." + byte(48) + "." + byte(40);
}

inline void refuse(const std::string& path, const std::string& why, fsdp2_code code = FSDP2_VERSION_MISMATCH) {
  throw Exception(code, path + ": " + why);
}

/// Whether the library was built for what this program was built for and runs. Reads constant data only; touches no C++
/// object that crosses the boundary.
inline void check_manifest(const fsdp2_manifest& m, const std::string& path) {
  constexpr uint32_t kBeforeVersions = offsetof(fsdp2_manifest, torch_abi_version);
  if (m.struct_size < kBeforeVersions || m.magic != FSDP2_MANIFEST_MAGIC) {
    refuse(path, "not an fsdp2 plugin: its fsdp2_plugin_manifest has another format");
  }
  const auto abi = [](uint32_t major, uint32_t minor) { return std::to_string(major) + "." + std::to_string(minor); };
  if (m.abi_major != FSDP2_ABI_MAJOR) {
    refuse(path, "speaks plugin ABI " + abi(m.abi_major, m.abi_minor) + ", this program speaks " +
                     abi(FSDP2_ABI_MAJOR, FSDP2_ABI_MINOR) +
                     ": rebuild the program with the plugin.hpp of that plugin, or load a plugin of ABI " +
                     abi(FSDP2_ABI_MAJOR, FSDP2_ABI_MINOR));
  }
  if (m.struct_size < sizeof(fsdp2_manifest)) {
    refuse(path, "its manifest has " + std::to_string(m.struct_size) + " bytes, ABI " + abi(m.abi_major, m.abi_minor) +
                     " needs " + std::to_string(sizeof(fsdp2_manifest)) + ": rebuild the plugin");
  }
  const uint64_t running = aoti_torch_abi_version();
  if (running != TORCH_ABI_VERSION) {
    refuse(path, "not loaded: this program was built for " + torch_version(TORCH_ABI_VERSION) + " but runs " +
                     torch_version(running) +
                     ": rebuild the program, or set LD_LIBRARY_PATH to the LibTorch it was built for");
  }
  if (m.torch_abi_version != running) {
    refuse(path, "built for " + torch_version(m.torch_abi_version) + ", this program runs " + torch_version(running) +
                     ": rebuild the plugin for " + torch_version(running) + ", or start the program with " +
                     torch_version(m.torch_abi_version));
  }
  if (m.cxx11_abi != _GLIBCXX_USE_CXX11_ABI) {
    refuse(path, "built with _GLIBCXX_USE_CXX11_ABI=" + std::to_string(m.cxx11_abi) + ", this program with " +
                     std::to_string(_GLIBCXX_USE_CXX11_ABI) + ": rebuild the plugin with the flag of this LibTorch");
  }
  // The version is the same for all nightlies of a release; the sizes are not.
  const auto same_size = [&path](const char* type, uint32_t theirs, size_t ours) {
    if (theirs == ours) return;
    refuse(path, std::string("built for another LibTorch of the same version: its ") + type + " has " +
                     std::to_string(theirs) + " bytes, this program's " + std::to_string(ours) +
                     ": rebuild the plugin against the LibTorch of this program");
  };
  same_size("c10::TensorImpl", m.sizeof_tensor_impl, sizeof(c10::TensorImpl));
  same_size("c10::IValue", m.sizeof_ivalue, sizeof(c10::IValue));
  same_size("torch::jit::Module", m.sizeof_jit_module, sizeof(torch::jit::Module));
  same_size("torch::jit::Operator", m.sizeof_jit_operator, sizeof(torch::jit::Operator));
}

/// The opened and initialized library. Plugin, Configuration and Engine share it; the last one shuts it down.
class Library {
 public:
  Library(std::string path, LogCallback log) : path_(std::move(path)), log_(std::move(log)) {
    open();
    try {
      read_table();
      host_.struct_size = sizeof(host_);
      host_.abi_major = FSDP2_ABI_MAJOR;
      host_.abi_minor = FSDP2_ABI_MINOR;
      host_.torch_abi_version = TORCH_ABI_VERSION;
      host_.torch_abi_entry = reinterpret_cast<const void*>(&aoti_torch_abi_version);
      host_.log = log_ ? &write_log : nullptr;
      host_.log_user = this;
      check(api->initialize(&host_));
    } catch (...) {
      dlclose(handle_);
      throw;
    }
  }
  ~Library() {
    api->status_release(api->shutdown(&host_));
    dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void check(fsdp2_status* status) const {
    if (status == nullptr) return;
    const std::unique_ptr<fsdp2_status, void (*)(fsdp2_status*)> owner(status, api->status_release);
    Exception exception(api->status_code(status), api->status_message(status));
    const auto detail = [&](const char* name) {
      const char* text = api->status_detail(status, name);
      return std::string(text != nullptr ? text : "");
    };
    exception.file = detail("file");
    exception.line = detail("line");
    exception.column = detail("column");
    exception.key = detail("key");
    exception.module = detail("module");
    exception.parameter = detail("parameter");
    exception.rank = detail("rank");
    exception.nearest = detail("nearest");
    throw exception;
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  const fsdp2_api* api = nullptr;
  const fsdp2_manifest* manifest = nullptr;

 private:
  void open() {
    char absolute[PATH_MAX];
    const bool exists = realpath(path_.c_str(), absolute) != nullptr;
    if (exists) path_ = absolute;  // messages shall say which file
    // Local: the plugin's symbols are nobody else's. Now: a foreign LibTorch fails here and not in the middle of a
    // step.
    handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    const char* reason = dlerror();
    const bool absent = !exists && path_.find('/') != std::string::npos;
    refuse(path_, std::string("cannot be loaded: ") + (reason != nullptr ? reason : "unknown reason"),
           absent ? FSDP2_NOT_FOUND : FSDP2_VERSION_MISMATCH);
  }

  void read_table() {
    manifest = static_cast<const fsdp2_manifest*>(dlsym(handle_, FSDP2_MANIFEST_SYMBOL));
    if (manifest == nullptr) refuse(path_, "not an fsdp2 plugin: it does not export " FSDP2_MANIFEST_SYMBOL);
    check_manifest(*manifest, path_);
    const auto get_api = reinterpret_cast<fsdp2_get_api_function>(dlsym(handle_, FSDP2_GET_API_SYMBOL));
    if (get_api == nullptr) refuse(path_, "not an fsdp2 plugin: it does not export " FSDP2_GET_API_SYMBOL);
    api = get_api(FSDP2_ABI_MAJOR);
    if (api == nullptr || api->struct_size < sizeof(fsdp2_api)) {
      refuse(path_, "its table of functions is older than this program: load a newer plugin");
    }
  }

  static void write_log(void* user, fsdp2_log_level level, const char* text, size_t length) {
    try {
      static_cast<const Library*>(user)->log_(level, std::string(text, length));
    } catch (...) {  // NOLINT(bugprone-empty-catch): a remark that cannot be written must not stop the training
    }
  }

  std::string path_;
  LogCallback log_;
  void* handle_ = nullptr;
  fsdp2_host_info host_{};
};

}  // namespace detail

}  // namespace v0_1
}  // namespace fsdp2

#endif  // FSDP2_DETAIL_LIBRARY_HPP
