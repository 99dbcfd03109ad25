// Where a module keeps a parameter: in slots of scripted objects, or as a tensor of the host's own.
#pragma once
#include <utility>
#include <vector>

#include "plugin/engine/slot.hpp"

namespace fsdp2 {

struct ParameterHome {
  std::vector<Slot> slots;  // none for a host's tensor
  at::Tensor host;

  static ParameterHome in_slots(std::vector<Slot> slots) { return {std::move(slots), {}}; }
  static ParameterHome of_host(at::Tensor tensor) { return {{}, std::move(tensor)}; }
  [[nodiscard]] at::Tensor tensor() const { return host.defined() ? host : slots.front().tensor(); }
};

}  // namespace fsdp2
