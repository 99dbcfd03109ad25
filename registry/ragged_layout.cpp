#include "registry/ragged_layout.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "registry/rounding.hpp"

namespace fsdp2 {
namespace {

constexpr int64_t kWide = 64;
constexpr int64_t kNarrow = 16;
constexpr int64_t kLargeBytesPerRank = int64_t{16} * 1024;
// Cuts looked at in one search. The usual search needs a few hundred.
constexpr int64_t kSearchSteps = 400'000;

/// A parameter in bytes.
struct Extent {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t row = 0;  // bytes of one row, 0 where there are none
};

struct Buffer {
  DType dtype = DType::kFloat32;
  bool trainable = true;
  std::vector<size_t> members;
  std::vector<Extent> extents;  // one a member
  int64_t filled = 0;           // bytes that are parameters
  int64_t end = 0;              // bytes up to the end of the last parameter
  int64_t part = 0;             // bytes
};

void place(Buffer& buffer, int64_t alignment) {
  int64_t end = 0;
  for (Extent& extent : buffer.extents) {
    extent.begin = round_up(end, alignment);
    end = extent.begin + extent.size;
  }
  buffer.end = end;
}

/// The nearest byte at or after `cut` where a cut is allowed. `index` is the first parameter that ends after the cut.
int64_t next_allowed(const std::vector<Extent>& extents, size_t index, int64_t cut) {
  if (index == extents.size()) return cut;
  const Extent& extent = extents[index];
  if (cut <= extent.begin) return cut;
  return extent.begin + round_up(cut - extent.begin, extent.row);
}

/// The smallest part, a multiple of 16 bytes and at most `limit`, whose cuts all fall between rows. If cut k of a part
/// is inside a row that ends at b, then so is cut k of every longer part up to b / k: those are skipped.
std::optional<int64_t> part_between_rows(const Buffer& buffer, int64_t ranks, int64_t limit) {
  int64_t part = round_up(divide_up(buffer.end, ranks), kNarrow);
  int64_t steps = 0;
  while (part <= limit) {
    int64_t wanted = part;
    size_t index = 0;
    for (int64_t k = 1; k < ranks && wanted == part; ++k) {
      const int64_t cut = k * part;
      if (cut >= buffer.end) break;
      if (++steps > kSearchSteps) return std::nullopt;
      const auto from = buffer.extents.begin() + static_cast<std::ptrdiff_t>(index);
      const auto found = std::partition_point(from, buffer.extents.end(),
                                              [&](const Extent& extent) { return extent.begin + extent.size <= cut; });
      index = static_cast<size_t>(found - buffer.extents.begin());
      const int64_t allowed = next_allowed(buffer.extents, index, cut);
      if (allowed != cut) wanted = std::max(part + kNarrow, round_up(divide_up(allowed, k), kNarrow));
    }
    if (wanted == part) return part;
    part = wanted;
  }
  return std::nullopt;
}

int64_t padding(const Buffer& buffer, int64_t ranks) {
  return buffer.part * ranks - buffer.filled;
}

/// Chooses the part once parameters have their places.
void cut(Buffer& buffer, int64_t ranks, int64_t granule) {
  const int64_t even = divide_up(buffer.end, ranks);
  if (ranks == 1) {
    buffer.part = round_up(even, kNarrow);
    return;
  }
  const int64_t anywhere = round_up(even, granule);
  const int64_t one_percent = (buffer.filled + buffer.filled / 100) / ranks;
  buffer.part = part_between_rows(buffer, ranks, std::max(anywhere, one_percent)).value_or(anywhere);
}

/// Alignment of the parameters and granule of cuts inside rows, widest first.
struct Setting {
  int64_t alignment;
  int64_t granule;
};
constexpr std::array<Setting, 3> kSettings{{{kWide, kWide}, {kNarrow, kWide}, {kNarrow, kNarrow}}};

void lay_out(Buffer& buffer, int64_t ranks, const Setting& setting) {
  place(buffer, setting.alignment);
  cut(buffer, ranks, setting.granule);
}

/// The first setting that meets the bound; the tightest if none does.
void lay_out(Buffer& buffer, int64_t ranks) {
  const bool large = buffer.filled >= kLargeBytesPerRank * ranks;
  for (const Setting& setting : kSettings) {
    lay_out(buffer, ranks, setting);
    const bool aligned_cheaply = setting.alignment == kNarrow || (buffer.end - buffer.filled) * 100 <= buffer.filled;
    const bool within = !large || padding(buffer, ranks) * 100 <= buffer.filled;
    if (aligned_cheaply && within) return;
  }
}

/// The whole unit is held to 1 %, so a small buffer beside a large one may have to be tightened.
void tighten(std::vector<Buffer>& buffers, int64_t ranks) {
  int64_t filled = 0;
  int64_t padded = 0;
  for (const Buffer& buffer : buffers) {
    filled += buffer.filled;
    padded += padding(buffer, ranks);
  }
  if (filled < kLargeBytesPerRank * ranks || padded * 100 <= filled) return;
  for (Buffer& buffer : buffers) lay_out(buffer, ranks, kSettings.back());
}

std::vector<Buffer> group(std::span<const LayoutParameter> parameters) {
  std::vector<Buffer> buffers;
  for (std::vector<size_t>& members : buffer_members(parameters)) {
    const LayoutParameter& first = parameters[members.front()];
    Buffer& buffer = buffers.emplace_back();
    buffer.dtype = first.dtype;
    buffer.trainable = first.trainable;
    for (const size_t i : members) {
      const std::vector<int64_t>& shape = parameters[i].shape;
      Extent extent;
      extent.size = numel(shape) * size_of(buffer.dtype);
      const int64_t rows = shape.empty() ? 1 : shape.front();
      extent.row = rows == 0 ? 0 : extent.size / rows;
      buffer.extents.push_back(extent);
      buffer.filled += extent.size;
    }
    buffer.members = std::move(members);
  }
  return buffers;
}

}  // namespace

UnitLayout ragged_layout(std::span<const LayoutParameter> parameters, int64_t ranks) {
  std::vector<Buffer> buffers = group(parameters);
  for (Buffer& buffer : buffers) lay_out(buffer, ranks);
  tighten(buffers, ranks);

  UnitLayout unit;
  unit.places.resize(parameters.size());
  for (const Buffer& buffer : buffers) {
    const int64_t size = size_of(buffer.dtype);
    for (size_t i = 0; i < buffer.members.size(); ++i) {
      unit.places[buffer.members[i]] = {unit.buffers.size(), buffer.extents[i].begin / size};
    }
    unit.buffers.push_back({buffer.dtype, buffer.trainable, buffer.part / size, buffer.filled / size});
  }
  return unit;
}

int64_t ragged_padding_bound(const PlannedUnit& unit, int64_t ranks) {
  int64_t filled = 0;
  for (const PlannedBuffer& buffer : unit.buffers) filled += buffer.filled * size_of(buffer.dtype);
  const auto parameters = static_cast<int64_t>(unit.parameters.size());
  const auto cuts = static_cast<int64_t>(unit.buffers.size()) * ranks;
  if (filled < kLargeBytesPerRank * ranks) return kWide * (parameters + cuts);
  return std::max(filled / 100, kNarrow * (parameters + cuts));
}

}  // namespace fsdp2
