// save_tiny_model <file>: a scripted module for the sample host.
#include "tests/abi/tiny_model.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  fsdp2::testing::tiny_model().save(argv[1]);
  return 0;
}
