// What the handles of an engine and of a call hold.
#pragma once
#include <fsdp2/plugin.h>

#include <memory>
#include <string>

#include "plugin/abi/arguments.hpp"
#include "plugin/abi/handshake.hpp"
#include "plugin/engine/engine.hpp"
#include "plugin/engine/unit_call.hpp"

struct fsdp2_engine {
  fsdp2::EngineCount count;  // first in, last out: the engine may not outlive the last shutdown
  std::unique_ptr<fsdp2::Engine> engine;
  std::string plan_text;
};

struct fsdp2_call {
  c10::intrusive_ptr<fsdp2::UnitCall> unit;  // null for a module that is no unit
  bool ended = false;
};

namespace fsdp2 {

inline Engine& engine_of(const fsdp2_engine* handle) {
  return *require_argument(handle, "engine").engine;
}

}  // namespace fsdp2
