// Places in a module that hold tensors.
#pragma once
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace fsdp2 {

/// An attribute, or an element of an attribute that is a list of tensors.
struct Slot {
  c10::intrusive_ptr<c10::ivalue::Object> object;
  size_t index = 0;
  std::optional<size_t> element = {};

  [[nodiscard]] const c10::IValue& value() const { return object->getSlot(index); }
  [[nodiscard]] at::Tensor tensor() const {
    return element ? value().toTensorList().get(*element) : value().toTensor();
  }
  void put(const at::Tensor& tensor) const {
    if (element) {
      value().toTensorList().set(*element, tensor);  // the list itself: whoever holds it sees the tensor
    } else {
      object->setSlot(index, tensor);
    }
  }
  bool operator==(const Slot& other) const {
    return object == other.object && index == other.index && element == other.element;
  }
};

}  // namespace fsdp2
