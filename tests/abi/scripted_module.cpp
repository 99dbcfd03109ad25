// For hosts in C, which cannot make a scripted module themselves.
#include "tests/abi/tiny_model.hpp"

extern "C" void* new_scripted_module() {
  return new torch::jit::Module(fsdp2::testing::tiny_model());
}

extern "C" void delete_scripted_module(void* module) {
  delete static_cast<torch::jit::Module*>(module);
}
