// Entries around a forward that the host writes in C++.
#include <numeric>
#include <utility>
#include <vector>

#include "plugin/abi/arguments.hpp"
#include "plugin/abi/engine_handle.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/status.hpp"
#include "plugin/sharded_tensors.hpp"

namespace fsdp2::entries {
namespace {

c10::IValue tuple_of(void* const* tensors, size_t count) {
  std::vector<c10::IValue> values;
  if (count > 0) require_argument(tensors, "tensors");
  for (size_t i = 0; i < count; ++i) {
    const std::string name = "tensors[" + std::to_string(i) + "]";
    values.emplace_back(require_argument(static_cast<const at::Tensor*>(tensors[i]), name.c_str()));
  }
  return c10::ivalue::Tuple::create(std::move(values));
}

void put_back(const c10::IValue& tuple, void* const* tensors) {
  const auto& values = tuple.toTupleRef().elements();
  for (size_t i = 0; i < values.size(); ++i) *static_cast<at::Tensor*>(tensors[i]) = values[i].toTensor();
}

}  // namespace

fsdp2_status* engine_enter(fsdp2_engine* engine, const char* path, void* const* tensors, size_t count,
                           fsdp2_call** out) noexcept {
  return guard([&] {
    require_argument(out, "out") = nullptr;
    const auto sharded = std::dynamic_pointer_cast<ShardedTensors>(engine_of(engine));
    const char* module = &require_argument(path, "path");
    if (sharded == nullptr) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "engine_enter() is for engines of shard_tensors(); a scripted module enters its units by itself");
    }
    const c10::IValue inputs = tuple_of(tensors, count);
    auto call = std::make_shared<HeldCall>();
    call->unit = sharded->enter(module);
    if (call->unit) {
      // There is no graph that would tell which inputs the host's forward changes in place: any may be.
      std::vector<int64_t> written(count);
      std::iota(written.begin(), written.end(), 0);
      put_back(call->unit->begin(inputs, written), tensors);
    }
    *out = CallHandles::live().add(std::move(call));
  });
}

fsdp2_status* call_exit(fsdp2_call* call, void* const* tensors, size_t count) noexcept {
  return guard([&] {
    const auto entered = CallHandles::live().require(call, "call");
    if (entered->ended) throw Error(ErrorCode::kFailedPrecondition, "call_exit() a second time for one call");
    const c10::IValue outputs = tuple_of(tensors, count);
    entered->ended = true;
    if (!entered->unit) return;
    put_back(entered->unit->end(outputs), tensors);
    entered->unit.reset();
  });
}

void call_release(fsdp2_call* call) noexcept {
  CallHandles::live().remove(call);
}

}  // namespace fsdp2::entries
