// What fsdp2_config holds.
#pragma once
#include <fsdp2/plugin.h>

#include <string>

#include "registry/config.hpp"

struct fsdp2_config {
  fsdp2::Config config;
  std::string toml;
};
