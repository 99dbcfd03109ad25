#include "plugin/script/node_place.hpp"

namespace fsdp2 {

CodePlace place_of(const torch::jit::Node& node) {
  const auto generated = node.sourceRange().findSourceRangeThatGenerated();
  const auto place = (generated ? *generated : node.sourceRange()).file_line_col();
  if (!place) return {};
  const auto& [file, line, column] = *place;
  return {file, static_cast<int64_t>(line)};
}

}  // namespace fsdp2
