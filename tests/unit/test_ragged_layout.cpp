#include "registry/ragged_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace fsdp2 {
namespace {

using Parameters = std::vector<LayoutParameter>;

PlannedUnit as_unit(const Parameters& parameters, const UnitLayout& layout) {
  PlannedUnit unit;
  unit.buffers = layout.buffers;
  for (size_t i = 0; i < parameters.size(); ++i) {
    unit.parameters.push_back(
        {"p" + std::to_string(i), {}, parameters[i].shape, layout.places[i].buffer, layout.places[i].offset});
  }
  return unit;
}

/// Bytes of a row of dimension 0.
int64_t row_bytes(const LayoutParameter& parameter) {
  return parameter.shape[0] == 0 ? 0 : numel(parameter.shape) / parameter.shape[0] * size_of(parameter.dtype);
}

/// Whether a cut at that byte is inside a row. Looks at every parameter.
bool cuts_a_row(const Parameters& parameters, const UnitLayout& layout, size_t buffer, int64_t cut) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (layout.places[i].buffer != buffer) continue;
    const int64_t begin = layout.places[i].offset * size_of(parameters[i].dtype);
    const int64_t size = numel(parameters[i].shape) * size_of(parameters[i].dtype);
    if (cut > begin && cut < begin + size && (cut - begin) % row_bytes(parameters[i]) != 0) return true;
  }
  return false;
}

/// What must hold of every layout: alignment, no overlap, the order of the parameters, sizes that add up.
void expect_sound(const Parameters& parameters, int64_t ranks, const UnitLayout& layout) {
  ASSERT_EQ(layout.places.size(), parameters.size());
  for (size_t b = 0; b < layout.buffers.size(); ++b) {
    const PlannedBuffer& buffer = layout.buffers[b];
    const int64_t size = size_of(buffer.dtype);
    EXPECT_EQ(buffer.part * size % 16, 0);
    int64_t end = 0;
    int64_t filled = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (layout.places[i].buffer != b) continue;
      EXPECT_EQ(parameters[i].dtype, buffer.dtype);
      EXPECT_EQ(parameters[i].trainable, buffer.trainable);
      EXPECT_GE(layout.places[i].offset, end);
      EXPECT_EQ(layout.places[i].offset * size % 16, 0);
      end = layout.places[i].offset + numel(parameters[i].shape);
      filled += numel(parameters[i].shape);
    }
    EXPECT_EQ(buffer.filled, filled);
    EXPECT_GE(buffer.part * ranks, end);
  }
  const PlannedUnit unit = as_unit(parameters, layout);
  EXPECT_LE(padding_bytes(unit, ranks), padding_bound(unit, ranks));
}

int64_t filled_bytes(const Parameters& parameters) {
  int64_t bytes = 0;
  for (const LayoutParameter& parameter : parameters) bytes += numel(parameter.shape) * size_of(parameter.dtype);
  return bytes;
}

TEST(RaggedLayout, TheExampleOfTheHeader) {
  const Parameters parameters{{{4, 32}}, {{32}}};
  const UnitLayout layout = ragged_layout(parameters, 3);
  ASSERT_EQ(layout.buffers.size(), 1U);
  EXPECT_EQ(layout.buffers[0].part * 4, 256);
  EXPECT_EQ(layout.buffers[0].filled * 4, 640);
  EXPECT_EQ(layout.places, (std::vector<ParameterPlace>{{0, 0}, {0, 128}}));
}

TEST(RaggedLayout, OneRankPadsOnlyForAlignment) {
  const Parameters parameters{{{5, 3}}, {{7}}};  // 60 bytes, then 28 at byte 64: 92, rounded up to 96
  const UnitLayout layout = ragged_layout(parameters, 1);
  EXPECT_EQ(layout.places[1].offset * 4, 64);
  EXPECT_EQ(layout.buffers[0].part * 4, 96);
}

TEST(RaggedLayout, OneBufferForEachDtypeAndTrainability) {
  const Parameters parameters{{{8, 4}, DType::kFloat32, true},
                              {{8, 4}, DType::kBFloat16, true},
                              {{8, 4}, DType::kFloat32, false},
                              {{8, 4}, DType::kFloat32, true}};
  const UnitLayout layout = ragged_layout(parameters, 2);
  ASSERT_EQ(layout.buffers.size(), 3U);
  EXPECT_EQ(layout.places[0], (ParameterPlace{0, 0}));
  EXPECT_EQ(layout.places[1], (ParameterPlace{1, 0}));
  EXPECT_EQ(layout.places[2], (ParameterPlace{2, 0}));
  EXPECT_EQ(layout.places[3], (ParameterPlace{0, 32}));
  EXPECT_FALSE(layout.buffers[2].trainable);
  expect_sound(parameters, 2, layout);
}

TEST(RaggedLayout, SixtyFourBytesUnlessThatCostsOverOnePercent) {
  // 4100 bytes and 4096: aligning to 64 costs 60 of 8196 bytes, under 1 %.
  const UnitLayout cheap = ragged_layout(Parameters{{{1025}}, {{1024}}}, 1);
  EXPECT_EQ(cheap.places[1].offset * 4, 4160);
  // 2052 bytes and 2048: 60 of 4100 bytes are over 1 %.
  const UnitLayout dear = ragged_layout(Parameters{{{513}}, {{512}}}, 1);
  EXPECT_EQ(dear.places[1].offset * 4, 2064);
}

TEST(RaggedLayout, CutsBetweenRowsWhereThatIsCheap) {
  // 1000 rows of 4096 bytes over 3 ranks: the smallest part of whole rows is 334 rows, which pads 0.2 %.
  const Parameters parameters{{{1000, 1024}}};
  const UnitLayout layout = ragged_layout(parameters, 3);
  EXPECT_EQ(layout.buffers[0].part, 334 * 1024);
}

TEST(RaggedLayout, CutsInsideRowsWhereRowsAreLong) {
  // 3 rows of 1 MiB over 2 ranks: whole rows would pad a third.
  const Parameters parameters{{{3, 262144}}};
  const UnitLayout layout = ragged_layout(parameters, 2);
  EXPECT_EQ(layout.buffers[0].part, 3 * 262144 / 2);
}

TEST(RaggedLayout, EmptyParametersTakeNoRoom) {
  const Parameters parameters{{{0, 4}}, {{4, 4}}, {{4, 0}}};
  for (const int64_t ranks : {1, 2, 5}) expect_sound(parameters, ranks, ragged_layout(parameters, ranks));
}

/// The smallest part, in steps of 16 bytes, without a cut inside a row, tried one after the other.
int64_t smallest_part(const Parameters& parameters, const UnitLayout& layout, size_t buffer, int64_t ranks) {
  int64_t end = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (layout.places[i].buffer != buffer) continue;
    end = std::max(end, (layout.places[i].offset + numel(parameters[i].shape)) * size_of(parameters[i].dtype));
  }
  for (int64_t part = 16;; part += 16) {
    if (part * ranks < end) continue;
    bool good = true;
    for (int64_t k = 1; k < ranks && good; ++k) good = !cuts_a_row(parameters, layout, buffer, k * part);
    if (good) return part;
  }
}

Parameters random_parameters(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Parameters parameters;
  const int64_t count = pick(1, 6);
  for (int64_t i = 0; i < count; ++i) {
    LayoutParameter parameter;
    parameter.dtype = pick(0, 3) == 0 ? DType::kBFloat16 : DType::kFloat32;
    parameter.trainable = pick(0, 5) != 0;
    parameter.shape = pick(0, 2) == 0 ? std::vector<int64_t>{pick(1, 200)}
                                      : std::vector<int64_t>{pick(1, 40), pick(1, 9), pick(1, 9)};
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

TEST(RaggedLayout, SmallUnitsAgainstBruteForce) {
  std::mt19937 random(7);
  int between_rows = 0;
  int inside_rows = 0;
  for (int round = 0; round < 3000; ++round) {
    const Parameters parameters = random_parameters(random);
    const int64_t ranks = std::uniform_int_distribution<int64_t>(1, 9)(random);
    const UnitLayout layout = ragged_layout(parameters, ranks);
    expect_sound(parameters, ranks, layout);
    for (size_t b = 0; b < layout.buffers.size(); ++b) {
      const int64_t part = layout.buffers[b].part * size_of(layout.buffers[b].dtype);
      const int64_t smallest = smallest_part(parameters, layout, b, ranks);
      bool inside = false;
      for (int64_t k = 1; k < ranks; ++k) inside = inside || cuts_a_row(parameters, layout, b, k * part);
      if (inside) {
        // Only where whole rows would have padded more, and over 1 %.
        EXPECT_EQ(part % 64, 0);
        EXPECT_LT(part, smallest);
        EXPECT_GT((smallest * ranks - layout.buffers[b].filled * size_of(layout.buffers[b].dtype)) * 100,
                  layout.buffers[b].filled * size_of(layout.buffers[b].dtype));
        ++inside_rows;
      } else {
        EXPECT_EQ(part, smallest);
        ++between_rows;
      }
    }
    if (testing::Test::HasFailure()) FAIL() << "round " << round << ", " << ranks << " ranks";
  }
  EXPECT_GT(between_rows, 100);
  EXPECT_GT(inside_rows, 100);
}

TEST(RaggedLayout, LargeUnitsPadAtMostOnePercent) {
  std::mt19937 random(11);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int checked = 0;
  for (int round = 0; round < 400; ++round) {
    Parameters parameters;
    const int64_t ranks = pick(2, 64);
    while (filled_bytes(parameters) < ranks * 16 * 1024) {
      const int64_t width = pick(100, 3000);
      parameters.push_back({{pick(1, 40), width}});
      parameters.push_back({{width}, DType::kFloat32, pick(0, 9) != 0});
    }
    const UnitLayout layout = ragged_layout(parameters, ranks);
    expect_sound(parameters, ranks, layout);
    EXPECT_LE(padding_bytes(as_unit(parameters, layout), ranks) * 100, filled_bytes(parameters)) << ranks << " ranks";
    ++checked;
  }
  EXPECT_EQ(checked, 400);
}

TEST(RaggedLayout, AUnitWithASmallSecondBufferStaysWithinOnePercent) {
  // 1 MiB over 64 ranks is the least size for which 1 % is promised; one frozen element beside it.
  const Parameters parameters{{{64, 4096}}, {{1}, DType::kFloat32, false}};
  const UnitLayout layout = ragged_layout(parameters, 64);
  EXPECT_LE(padding_bytes(as_unit(parameters, layout), 64) * 100, filled_bytes(parameters));
}

TEST(RaggedLayout, TenThousandParametersOnManyRanks) {
  Parameters parameters;
  for (int i = 0; i < 5000; ++i) {
    parameters.push_back({{1000 + i % 17, 1023}, DType::kBFloat16});
    parameters.push_back({{1023 + i % 5}, DType::kBFloat16});
  }
  const auto start = std::chrono::steady_clock::now();
  const UnitLayout layout = ragged_layout(parameters, 16384);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  expect_sound(parameters, 16384, layout);
  EXPECT_LT(took.count(), 2.0);
}

}  // namespace
}  // namespace fsdp2
