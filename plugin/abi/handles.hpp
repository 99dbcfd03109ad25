// What the opaque handles of plugin.h hold.
#pragma once
#include <fsdp2/plugin.h>

#include <memory>
#include <string>

#include "plugin/abi/handshake.hpp"
#include "plugin/wrap/sharded_module.hpp"
#include "registry/config.hpp"

struct fsdp2_config {
  fsdp2::Config config;
  std::string toml;
};

struct fsdp2_engine {
  fsdp2::EngineCount count;  // first in, last out: the engine may not outlive the last shutdown
  std::unique_ptr<fsdp2::ShardedModule> module;
  std::string plan_text;
};
