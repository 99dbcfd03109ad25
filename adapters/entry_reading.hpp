// Values of YAML entries by the type that a host wants, or an error at the entry's place.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/yaml_block.hpp"

namespace fsdp2 {

/// "`key: value` " and the sentence, at the value's place.
Error entry_fault(const YamlEntry& entry, const std::string& sentence, const std::string& nearest = {});

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
