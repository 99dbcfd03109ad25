// Which unit a module object belongs to: the one lookup behind the operators that TorchScript runs.
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>

namespace fsdp2 {

class Unit;

/// Process-wide, since an operator in a graph knows nothing but the object it runs on. Thread-safe.
/// An object stays in the table, and alive, until remove(): an address is never reused while it is in.
void add_to_unit_table(const c10::intrusive_ptr<c10::ivalue::Object>& object, const std::shared_ptr<Unit>& unit);
void remove_from_unit_table(const c10::ivalue::Object* object);
/// The engine ended without a detach: the object is no longer kept alive, but known as one that holds shards.
void mark_lost_in_unit_table(const c10::ivalue::Object* object);

/// Null for an object that belongs to no engine. Throws Error (kFailedPrecondition) for a lost one.
std::shared_ptr<Unit> find_unit(const c10::ivalue::Object* object);

}  // namespace fsdp2
