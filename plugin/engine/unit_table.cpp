#include "plugin/engine/unit_table.hpp"

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "registry/error.hpp"

namespace fsdp2 {
namespace {

struct Entry {
  c10::intrusive_ptr<c10::ivalue::Object> object;
  std::optional<c10::weak_intrusive_ptr<c10::ivalue::Object>> lost;  // keeps the address from being used again
  std::weak_ptr<Unit> unit;
};

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<const c10::ivalue::Object*, Entry> entries;
};

// Leaked on purpose: destructors at exit may run after LibTorch's own.
Table& table() {
  static Table& instance = *new Table;
  return instance;
}

}  // namespace

void add_to_unit_table(const c10::intrusive_ptr<c10::ivalue::Object>& object, const std::shared_ptr<Unit>& unit) {
  std::unique_lock lock(table().mutex);
  table().entries[object.get()] = {object, std::nullopt, unit};
}

void remove_from_unit_table(const c10::ivalue::Object* object) {
  Entry removed;  // dropped after the lock: it may be the last reference to a module
  std::unique_lock lock(table().mutex);
  auto found = table().entries.find(object);
  if (found == table().entries.end()) return;
  removed = std::move(found->second);
  table().entries.erase(found);
  lock.unlock();
}

void mark_lost_in_unit_table(const c10::ivalue::Object* object) {
  c10::intrusive_ptr<c10::ivalue::Object> dropped;  // after the lock, as above
  std::unique_lock lock(table().mutex);
  auto found = table().entries.find(object);
  if (found == table().entries.end()) return;
  found->second.lost.emplace(found->second.object);
  dropped = std::move(found->second.object);
  lock.unlock();
}

std::shared_ptr<Unit> find_unit(const c10::ivalue::Object* object) {
  std::shared_lock lock(table().mutex);
  auto found = table().entries.find(object);
  if (found == table().entries.end()) return nullptr;
  if (found->second.lost) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "the engine of this module was destroyed without detach(): the module holds shards and cannot be run, " +
            std::string("saved or sharded again; load it anew"));
  }
  return found->second.unit.lock();
}

}  // namespace fsdp2
