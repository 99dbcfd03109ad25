// Values of YAML entries by the type that a host wants, or an error at the entry's place.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/setting.hpp"
#include "adapters/yaml_block.hpp"

namespace fsdp2 {

/// The member of a map; a null one where it is no map or has no such member.
const Setting& child_of(const Setting& map, std::string_view key);

/// One of `names`, in any case, with or without the name of a Python enumeration in front ("ShardingStrategy.").
std::string_view entry_choice(const YamlEntry& entry, std::span<const std::string_view> names);

bool entry_flag(const YamlEntry& entry);
int64_t entry_whole(const YamlEntry& entry, int64_t least, const std::string& allowed);

/// A number, "1e8" too. YAML 1.1 calls that text, but the hosts whose numbers we read do not.
double entry_number(const YamlEntry& entry);

/// A list of whole numbers; nothing where it is another list or none.
std::optional<std::vector<int64_t>> entry_sizes(const YamlEntry& entry);

/// The number that the text is as a whole.
std::optional<double> number_in(std::string_view text);

/// "Block" of "my_project.nets.Block".
std::string last_name(std::string_view dotted);

}  // namespace fsdp2
