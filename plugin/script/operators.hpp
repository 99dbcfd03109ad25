// The operators that instrumented TorchScript graphs call, in the namespace `fsdp2_plugin`:
//   pre(Any self, t inputs, int[] written) -> (t, Any)   before a unit's first operation
//   post(Any self, t outputs, Any call) -> t             after its last
//   refuse_save(Any self) -> Tensor                      in place of serialization
// They look the unit up by `self`; an object that belongs to no engine passes through, so copies made before the wrap
// and unwrapped instances of a wrapped class run as before.
#pragma once

namespace fsdp2 {

inline constexpr const char* kPreOperator = "fsdp2_plugin::pre";
inline constexpr const char* kPostOperator = "fsdp2_plugin::post";
inline constexpr const char* kRefuseSaveOperator = "fsdp2_plugin::refuse_save";

/// Registers them, once a process; further calls do nothing. Never deregistered: compiled graphs keep the functions.
void register_operators();

}  // namespace fsdp2
