// The handles that a host holds. A handle is a number, given once only, and looked up before anything is read: one that
// was released or is of another kind is told from a live one without touching memory that is somebody else's by now.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "registry/error.hpp"

namespace fsdp2 {

/// One count for all kinds.
inline uintptr_t next_handle() noexcept {
  static std::atomic<uintptr_t> last = 0;
  return ++last;
}

/// The live handles of one kind. `Handle` is its name in plugin.h, a type that nothing defines; `Object` is what a
/// handle stands for.
template <typename Handle, typename Object>
class Handles {
 public:
  /// Those of the process. Never destroyed: hosts may release from their static objects.
  static Handles& live() {
    static auto& handles = *new Handles;
    return handles;
  }

  [[nodiscard]] Handle* add(std::shared_ptr<Object> object) {
    const uintptr_t number = next_handle();
    const std::scoped_lock lock(mutex_);
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<Handle*>(number);  // NOLINT(performance-no-int-to-ptr): never dereferenced
  }

  /// Null where there is none. What was found stays while the caller holds it, even if the handle is released
  /// meanwhile.
  [[nodiscard]] std::shared_ptr<Object> find(const Handle* handle) const {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  /// Throws Error (kInvalidArgument), with the argument's name, where there is none.
  [[nodiscard]] std::shared_ptr<Object> require(const Handle* handle, const std::string& argument) const {
    if (auto object = find(handle)) return object;
    throw Error(
        ErrorCode::kInvalidArgument,
        argument + (handle == nullptr ? " is null" : " is no live handle: it was released, or is of another kind"));
  }

  void remove(const Handle* handle) noexcept {
    typename Objects::node_type last;  // destroyed when the lock is gone: an engine's end may release other handles
    const std::scoped_lock lock(mutex_);
    last = objects_.extract(reinterpret_cast<uintptr_t>(handle));
  }

 private:
  using Objects = std::unordered_map<uintptr_t, std::shared_ptr<Object>>;

  mutable std::mutex mutex_;
  Objects objects_;
};

}  // namespace fsdp2
