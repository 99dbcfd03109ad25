// Every dialect that is YAML.
#include "property.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fsdp2::fuzz::Input input(data, size);
  fsdp2::fuzz::check_dialects(input, "host.yaml", {"accelerate", "lightning", "composer", "torchfort"});
  fsdp2::fuzz::check_detection(input.text, "host.yaml");
  return 0;
}
