// Walks over the tensors in a value: tuples, lists, dicts and optionals, nested.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

namespace fsdp2 {

/// Whether a walk enters objects of TorchScript classes. Modules are never entered.
enum class Objects { kSkip, kEnter };

/// Calls `visit` for each defined tensor in `value`.
void for_each_tensor(const c10::IValue& value, c10::function_ref<void(const at::Tensor&)> visit,
                     Objects objects = Objects::kSkip);

/// Replaces tensors inside lists, dicts and objects themselves, so that whoever holds them sees it. A tensor or a tuple
/// at the top stays as it is.
void replace_tensors_inside(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace);

/// The same value with each defined tensor replaced by what `replace` returns for it. Containers are rebuilt only where
/// a tensor in them changed, so an untouched list keeps its identity.
c10::IValue replace_tensors(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace);

}  // namespace fsdp2
