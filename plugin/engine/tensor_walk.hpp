// Walks over the tensors in a value: tuples, lists, dicts and optionals, nested.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

namespace fsdp2 {

/// Calls `visit` for each defined tensor in `value`.
void for_each_tensor(const c10::IValue& value, c10::function_ref<void(const at::Tensor&)> visit);

/// The same value with each defined tensor replaced by what `replace` returns for it. Containers are rebuilt only where
/// a tensor in them changed, so an untouched list keeps its identity.
c10::IValue replace_tensors(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace);

}  // namespace fsdp2
