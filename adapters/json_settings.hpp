// JSON as settings.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/setting.hpp"

namespace fsdp2 {

/// Comments (# // /* */), commas before a closing bracket and a byte order mark, which HJSON has and JSON does not.
enum class JsonExtras : uint8_t { kNone, kComments };

/// The whole of a file, called `file` in messages. Columns count bytes.
Setting read_json(std::string_view text, const std::string& file, JsonExtras extras);

/// A key that stands twice in one map, anywhere below, is an error at the second one.
void refuse_duplicate_keys(const Setting& setting);

}  // namespace fsdp2
