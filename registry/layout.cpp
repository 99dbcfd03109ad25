#include "registry/layout.hpp"

#include <algorithm>
#include <string>

#include "registry/error.hpp"
#include "registry/per_parameter_layout.hpp"
#include "registry/ragged_layout.hpp"

namespace fsdp2 {

UnitLayout lay_out(Layout layout, std::span<const LayoutParameter> parameters, int64_t ranks) {
  switch (layout) {
    case Layout::kRagged:
      return ragged_layout(parameters, ranks);
    case Layout::kPerParameter:
      return per_parameter_layout(parameters, ranks);
    case Layout::kFlat:
      break;
  }
  throw Error(ErrorCode::kUnsupported, "layout \"" + std::string(name_of(layout)) + "\" is not built yet");
}

std::vector<std::vector<size_t>> buffer_members(std::span<const LayoutParameter> parameters) {
  std::vector<std::vector<size_t>> buffers;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const std::vector<size_t>& members) {
      const LayoutParameter& first = parameters[members.front()];
      return first.dtype == parameters[i].dtype && first.trainable == parameters[i].trainable;
    });
    (found == buffers.end() ? buffers.emplace_back() : *found).push_back(i);
  }
  return buffers;
}

int64_t padding_bytes(const PlannedUnit& unit, int64_t ranks) {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : unit.buffers) {
    bytes += (buffer.part * ranks - buffer.filled) * size_of(buffer.dtype);
  }
  return bytes;
}

int64_t padding_bound(const PlannedUnit& unit, int64_t ranks) {
  const bool chunked = !unit.parameters.empty() && unit.parameters.front().chunk;
  return chunked ? per_parameter_padding_bound(unit, ranks) : ragged_padding_bound(unit, ranks);
}

}  // namespace fsdp2
