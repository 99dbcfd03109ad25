#include "registry/per_parameter_layout.hpp"

#include "registry/rounding.hpp"

namespace fsdp2 {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

/// Elements of one row of dimension 0; 0 where there are no rows.
int64_t row_numel(const std::vector<int64_t>& shape) {
  return shape.front() == 0 ? 0 : numel(shape) / shape.front();
}

}  // namespace

UnitLayout per_parameter_layout(std::span<const LayoutParameter> parameters, int64_t ranks) {
  UnitLayout unit;
  unit.places.resize(parameters.size());
  for (const std::vector<size_t>& members : buffer_members(parameters)) {
    const LayoutParameter& first = parameters[members.front()];
    PlannedBuffer buffer{first.dtype, first.trainable};
    const int64_t alignment = kAlignment / size_of(buffer.dtype);
    const bool copies = ranks > 1 && members.size() > 1;
    int64_t end = 0;  // of the full parameters
    for (const size_t i : members) {
      const std::vector<int64_t>& shape = parameters[i].shape;
      const int64_t size = divide_up(shape.front(), ranks) * row_numel(shape);
      end = round_up(end, alignment);
      // The one rank's part is what the unit computes with.
      const int64_t in_part = ranks == 1 ? end : buffer.part;
      unit.places[i] = {unit.buffers.size(), end, PlannedChunk{in_part, size}};
      buffer.part = in_part + size;
      buffer.filled += numel(shape);
      end += size * ranks;
    }
    if (copies) buffer.copied_out = end;
    unit.buffers.push_back(buffer);
  }
  return unit;
}

int64_t per_parameter_padding_bound(const PlannedUnit& unit, int64_t ranks) {
  if (ranks == 1) return kAlignment * static_cast<int64_t>(unit.parameters.size());
  int64_t bytes = 0;
  for (const PlannedParameter& parameter : unit.parameters) {
    bytes += (ranks - 1) * row_numel(parameter.shape) * size_of(unit.buffers[parameter.buffer].dtype);
  }
  return bytes;
}

}  // namespace fsdp2
