#include "plugin/engine/unit_table.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace fsdp2 {
namespace {

struct Entry {
  c10::intrusive_ptr<c10::ivalue::Object> object;
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
  table().entries[object.get()] = {object, unit};
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

std::shared_ptr<Unit> find_unit(const c10::ivalue::Object* object) {
  std::shared_lock lock(table().mutex);
  auto found = table().entries.find(object);
  return found == table().entries.end() ? nullptr : found->second.unit.lock();
}

}  // namespace fsdp2
