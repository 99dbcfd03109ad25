// Every dialect that is JSON, with comments or without.
#include "property.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fsdp2::fuzz::Input input(data, size);
  fsdp2::fuzz::check_dialects(input, "host.json", {"deepspeed", "transformers", "torch_fsdp1", "accelerate"});
  fsdp2::fuzz::check_detection(input.text, "host.json");
  return 0;
}
