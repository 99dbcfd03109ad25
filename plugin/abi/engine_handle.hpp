// What the handles of an engine and of a call stand for.
#pragma once
#include <fsdp2/plugin.h>

#include <memory>
#include <string>
#include <vector>

#include "plugin/abi/handles.hpp"
#include "plugin/abi/handshake.hpp"
#include "plugin/engine/engine.hpp"
#include "plugin/engine/unit_call.hpp"

namespace fsdp2 {

struct HeldEngine {
  EngineCount count;  // first in, last out: the engine may not outlive the last shutdown
  std::unique_ptr<Engine> engine;
  std::string plan_text;
};
using EngineHandles = Handles<fsdp2_engine, HeldEngine>;

struct HeldCall {
  c10::intrusive_ptr<UnitCall> unit;  // null for a module that is no unit
  bool ended = false;
};
using CallHandles = Handles<fsdp2_call, HeldCall>;

struct HeldUnshard {
  std::vector<std::weak_ptr<Unit>> units;
};
using UnshardHandles = Handles<fsdp2_unshard, HeldUnshard>;

/// Throws Error (kInvalidArgument) unless it is one that lives.
inline std::shared_ptr<Engine> engine_of(const fsdp2_engine* handle) {
  auto held = EngineHandles::live().require(handle, "engine");
  Engine* engine = held->engine.get();
  return {std::move(held), engine};
}

}  // namespace fsdp2
