#include "plugin/engine/tensor_walk.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <set>

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

bool is_object(const c10::IValue& value) {
  return value.isObject() && !value.isModule();
}

class Walk {
 public:
  Walk(c10::function_ref<void(const at::Tensor&)> visit, Objects objects) : visit_(visit), objects_(objects) {}

  void enter(const c10::IValue& value) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit_(value.toTensor());
    } else if (value.isTuple()) {
      for (const c10::IValue& element : value.toTupleRef().elements()) enter(element);
    } else if (value.isList()) {
      const auto list = value.toList();
      for (size_t i = 0; i < list.size(); ++i) enter(list.get(i));
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict()) enter(entry.value());
    } else if (objects_ == Objects::kEnter && is_object(value) && entered_.insert(&value.toObjectRef()).second) {
      for (const c10::IValue& attribute : value.toObjectRef().slots()) enter(attribute);
    }
  }

 private:
  c10::function_ref<void(const at::Tensor&)> visit_;
  Objects objects_;
  std::set<const void*> entered_;  // objects may hold each other
};

class InsideWalk {
 public:
  explicit InsideWalk(Replace replace) : replace_(replace) {}

  void enter(const c10::IValue& value) {
    if (value.isTuple()) {
      for (const c10::IValue& element : value.toTupleRef().elements()) enter(element);
    } else if (value.isList()) {
      auto list = value.toList();
      for (size_t i = 0; i < list.size(); ++i) put(list.get(i), [&](c10::IValue&& v) { list.set(i, std::move(v)); });
    } else if (value.isGenericDict()) {
      auto dict = value.toGenericDict();
      for (const auto& entry : dict) put(entry.value(), [&](c10::IValue&& v) { entry.setValue(std::move(v)); });
    } else if (is_object(value) && entered_.insert(&value.toObjectRef()).second) {
      auto object = value.toObject();
      for (size_t i = 0; i < object->slots().size(); ++i) {
        put(object->getSlot(i), [&](c10::IValue&& v) { object->setSlot(i, std::move(v)); });
      }
    }
  }

 private:
  template <class Set>
  void put(const c10::IValue& value, const Set& set) {
    if (value.isTensor() || value.isTuple()) {
      if (auto result = replaced(value, replace_)) set(std::move(*result));
    }
    enter(value);
  }

  Replace replace_;
  std::set<const void*> entered_;
};

}  // namespace

void for_each_tensor(const c10::IValue& value, c10::function_ref<void(const at::Tensor&)> visit, Objects objects) {
  Walk(visit, objects).enter(value);
}

void replace_tensors_inside(const c10::IValue& value, Replace replace) {
  InsideWalk(replace).enter(value);
}

c10::IValue replace_tensors(const c10::IValue& value, Replace replace) {
  return replaced(value, replace).value_or(value);
}

}  // namespace fsdp2
