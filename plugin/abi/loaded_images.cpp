#include "plugin/abi/loaded_images.hpp"

#include <dlfcn.h>
#include <fsdp2/plugin.h>
#include <link.h>

extern "C" const fsdp2_manifest fsdp2_plugin_manifest;

namespace fsdp2 {

std::string image_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr || *info.dli_fname == '\0') return "an unknown file";
  return info.dli_fname;
}

std::string own_image() {
  return image_of(&fsdp2_plugin_manifest);
}

std::vector<std::string> other_plugin_images() {
  // The loader holds its lock during the walk: collect the names first, open afterwards.
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t /*size*/, void* result) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
          static_cast<std::vector<std::string>*>(result)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &names);
  std::vector<std::string> others;
  for (const std::string& name : names) {
    void* handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const void* manifest = dlsym(handle, FSDP2_MANIFEST_SYMBOL);
    // A handle's lookup goes on into the libraries it needs: what counts is where the symbol lies.
    if (manifest != nullptr && manifest != &fsdp2_plugin_manifest && image_of(manifest) == name) others.push_back(name);
    dlclose(handle);
  }
  return others;
}

}  // namespace fsdp2
