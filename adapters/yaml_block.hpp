// YAML as the hosts that read it with PyYAML see it: scalars typed by the rules of YAML 1.1.
#pragma once
#include <string>
#include <string_view>

#include "adapters/setting.hpp"

namespace fsdp2 {

using YamlEntry = Setting;
using YamlBlock = SettingsTable;

/// The whole of a file, called `file` in messages.
Setting read_yaml(std::string_view text, const std::string& file);

}  // namespace fsdp2
