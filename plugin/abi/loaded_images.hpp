// Shared objects of this process: where an address comes from, and which other images of the plugin there are.
#pragma once
#include <string>
#include <vector>

namespace fsdp2 {

/// Path of the shared object that holds `address`; "an unknown file" if no one knows.
std::string image_of(const void* address);

/// Path of this library.
std::string own_image();

/// Paths of the loaded objects, other than this one, that export the plugin's manifest.
std::vector<std::string> other_plugin_images();

}  // namespace fsdp2
