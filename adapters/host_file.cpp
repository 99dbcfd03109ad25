#include "adapters/host_file.hpp"

#include <yaml-cpp/yaml.h>

#include "registry/given.hpp"

namespace fsdp2 {

void check_size(std::string_view text, const std::string& file) {
  if (text.size() <= kLargestHostFile) return;
  Source source;
  source.file = file;
  throw error_at(source, {},
                 "this is larger than " + std::to_string(kLargestHostFile) + " bytes: no configuration file is");
}

YAML::Node load_yaml(std::string_view text, const std::string& file) {
  check_size(text, file);
  try {
    return YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    Source source{file, error.mark.line + 1, error.mark.column + 1, {}, {}, true};
    throw error_at(source, {}, "this is not YAML: " + error.msg);
  }
}

YAML::Node child_of(const YAML::Node& node, std::string_view key) {
  YAML::Node found;
  if (!node.IsDefined() || !node.IsMap()) return found;
  for (const auto& item : node) {
    if (item.first.IsScalar() && item.first.Scalar() == key) found.reset(item.second);
  }
  return found;
}

}  // namespace fsdp2
