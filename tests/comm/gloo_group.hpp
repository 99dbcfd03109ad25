// A Gloo group on the loopback device that meets in a file.
#pragma once
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <string>

namespace fsdp2::testing {

inline c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_group(const std::string& file, int rank, int world) {
  using Gloo = c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::FileStore>(file, world), rank, world, options);
}

}  // namespace fsdp2::testing
