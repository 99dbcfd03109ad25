// A program that runs another LibTorch than it was built for, as plugin.hpp sees it: its own definition of the version
// comes before LibTorch's, for this program and for the plugin. other_torch <plugin>
#include <cstdio>
#include <cstring>
#include <fsdp2/plugin.hpp>
#include <string>

extern "C" __attribute__((visibility("default"))) uint64_t aoti_torch_abi_version() {
  return (uint64_t{2} << 56) | (uint64_t{15} << 48);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    fsdp2::Plugin::load(argv[1]);
  } catch (const fsdp2::Exception& error) {
    const std::string expected =
        std::string(argv[1]) +
        ": not loaded: this program was built for LibTorch " TORCH_VERSION
        " but runs LibTorch 2.15.0: rebuild the program, or set LD_LIBRARY_PATH to the LibTorch it "
        "was built for";
    if (error.what() != expected) std::fprintf(stderr, "%s\nexpected\n%s\n", error.what(), expected.c_str());
    if (error.what() != expected) return 1;
  }
  // A host that did not look: the library refuses by itself.
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  const auto get_api = reinterpret_cast<fsdp2_get_api_function>(dlsym(library, FSDP2_GET_API_SYMBOL));
  const fsdp2_api* api = get_api(FSDP2_ABI_MAJOR);
  fsdp2_host_info host{};
  host.struct_size = sizeof(host);
  host.abi_major = FSDP2_ABI_MAJOR;
  host.abi_minor = FSDP2_ABI_MINOR;
  fsdp2_status* status = api->initialize(&host);
  const char* text = "built for LibTorch " TORCH_VERSION ", but it found LibTorch 2.15.0 in ";
  const bool refused =
      api->status_code(status) == FSDP2_VERSION_MISMATCH && std::strstr(api->status_message(status), text) != nullptr;
  if (!refused) std::fprintf(stderr, "%s\n", api->status_message(status));
  api->status_release(status);
  return refused ? 0 : 1;
}
