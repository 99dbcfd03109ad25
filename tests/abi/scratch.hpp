// Files of a test: copies of the plugin, damaged or not.
#pragma once
#include <cstdint>
#include <string>

namespace fsdp2::testing {

/// A new empty folder, removed with its files at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

/// The built plugin; the test's environment names it.
std::string plugin_path();
/// A library of the build that lies in the same folder.
std::string beside_plugin(const std::string& name);

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);

}  // namespace fsdp2::testing
