// What fsdp2_engine holds.
#pragma once
#include <fsdp2/plugin.h>

#include <memory>
#include <string>

#include "plugin/abi/handshake.hpp"
#include "plugin/sharded_module.hpp"

struct fsdp2_engine {
  fsdp2::EngineCount count;  // first in, last out: the engine may not outlive the last shutdown
  std::unique_ptr<fsdp2::ShardedModule> module;
  std::string plan_text;
};
