#include "tests/abi/scratch.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace fsdp2::testing {

Scratch::Scratch() {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/fsdp2_abi_XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
  folder_ = pattern;
}

// Not std::filesystem::remove_all: LibTorch exports a copy of its own that crashes here.
Scratch::~Scratch() {
  if (DIR* folder = opendir(folder_.c_str())) {
    while (const dirent* entry = readdir(folder)) unlink(path(entry->d_name).c_str());
    closedir(folder);
  }
  rmdir(folder_.c_str());
}

std::string plugin_path() {
  const char* path = std::getenv("FSDP2_TEST_PLUGIN");
  if (path == nullptr) throw std::runtime_error("FSDP2_TEST_PLUGIN is not set to the plugin's path");
  return path;
}

std::string beside_plugin(const std::string& name) {
  const std::string plugin = plugin_path();
  return plugin.substr(0, plugin.rfind('/') + 1) + name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path);
  return bytes.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace fsdp2::testing
