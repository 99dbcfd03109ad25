// Layouts: where the parameters of a unit lie in its buffers, and what each rank owns of them. Pure arithmetic; a
// layout is one function, and a plan says all that the engine needs to know of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "registry/dtype.hpp"
#include "registry/options.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

struct LayoutParameter {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  bool trainable = true;
};

/// As in PlannedParameter.
struct ParameterPlace {
  size_t buffer = 0;
  int64_t offset = 0;
  std::optional<PlannedChunk> chunk = {};
  bool operator==(const ParameterPlace&) const = default;
};

struct UnitLayout {
  std::vector<PlannedBuffer> buffers;  // in the order in which their first parameters come
  std::vector<ParameterPlace> places;  // one a parameter, in their order
};

/// Throws Error (kUnsupported) for a layout that is not built.
UnitLayout lay_out(Layout layout, std::span<const LayoutParameter> parameters, int64_t ranks);

/// Indices of the parameters of each buffer: those of one dtype that are all trainable or all frozen.
std::vector<std::vector<size_t>> buffer_members(std::span<const LayoutParameter> parameters);

/// Bytes of a unit's parts that are no parameter, over all ranks.
int64_t padding_bytes(const PlannedUnit& unit, int64_t ranks);

/// What the unit's layout holds that to.
int64_t padding_bound(const PlannedUnit& unit, int64_t ranks);

}  // namespace fsdp2
