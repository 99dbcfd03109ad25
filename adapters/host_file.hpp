// What holds for the files of all other hosts: they come from outside, so their size and their nesting have limits.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace YAML {
class Node;
}

namespace fsdp2 {

/// A megabyte. No host's configuration comes near it, and what a parser makes of more takes gigabytes.
inline constexpr size_t kLargestHostFile = 1U << 20U;

/// An error where the text is larger.
void check_size(std::string_view text, const std::string& file);

/// A YAML (or JSON) document; an error at the place of the first fault.
YAML::Node load_yaml(std::string_view text, const std::string& file);

/// The value of a key; null where the node is no map or has no such key. Of a key written twice the last one counts.
YAML::Node child_of(const YAML::Node& node, std::string_view key);

}  // namespace fsdp2
