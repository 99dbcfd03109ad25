// What fsdp2_config stands for.
#pragma once
#include <fsdp2/plugin.h>

#include <string>

#include "plugin/abi/handles.hpp"
#include "registry/config.hpp"

namespace fsdp2 {

struct HeldConfig {
  Config config;
  std::string toml;
};
using ConfigHandles = Handles<fsdp2_config, const HeldConfig>;

}  // namespace fsdp2
