#include "plugin/engine/tensor_walk.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

namespace fsdp2 {
namespace {

using Replace = c10::function_ref<at::Tensor(const at::Tensor&)>;

// Unset where nothing changed.
std::optional<c10::IValue> replaced(const c10::IValue& value, Replace replace);

c10::IValue replaced_or_same(const c10::IValue& value, Replace replace, bool& changed) {
  auto result = replaced(value, replace);
  changed |= result.has_value();
  return result.value_or(value);
}

std::optional<c10::IValue> replaced_tuple(const c10::ivalue::Tuple& tuple, Replace replace) {
  std::vector<c10::IValue> elements;
  bool changed = false;
  for (const c10::IValue& element : tuple.elements()) elements.push_back(replaced_or_same(element, replace, changed));
  if (!changed) return std::nullopt;
  auto type = tuple.type<c10::TupleType>();
  if (type->schema()) return c10::ivalue::Tuple::createNamed(std::move(elements), type);
  return c10::ivalue::Tuple::create(std::move(elements));
}

std::optional<c10::IValue> replaced(const c10::IValue& value, Replace replace) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return std::nullopt;
    at::Tensor result = replace(tensor);
    if (result.is_same(tensor)) return std::nullopt;
    return result;
  }
  if (value.isTuple()) return replaced_tuple(value.toTupleRef(), replace);
  bool changed = false;
  if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList copy(list.elementType());
    copy.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) copy.push_back(replaced_or_same(list.get(i), replace, changed));
    if (changed) return copy;
  } else if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict copy(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) copy.insert(entry.key(), replaced_or_same(entry.value(), replace, changed));
    if (changed) return copy;
  }
  return std::nullopt;
}

}  // namespace

void for_each_tensor(const c10::IValue& value, c10::function_ref<void(const at::Tensor&)> visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) for_each_tensor(element, visit);
  } else if (value.isList()) {
    const auto list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) for_each_tensor(list.get(i), visit);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) for_each_tensor(entry.value(), visit);
  }
}

c10::IValue replace_tensors(const c10::IValue& value, Replace replace) {
  return replaced(value, replace).value_or(value);
}

}  // namespace fsdp2
