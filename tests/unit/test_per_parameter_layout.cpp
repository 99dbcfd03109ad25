// Against torch.chunk and PyTorch's fully_shard: numbers made in Python.
#include "registry/per_parameter_layout.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fsdp2 {
namespace {

using Parameters = std::vector<LayoutParameter>;

PlannedUnit as_unit(const Parameters& parameters, const UnitLayout& layout) {
  PlannedUnit unit;
  unit.buffers = layout.buffers;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterPlace& place = layout.places[i];
    unit.parameters.push_back(
        {"p" + std::to_string(i), {}, parameters[i].shape, place.buffer, place.offset, place.chunk});
  }
  return unit;
}

/// [len(c) for c in torch.chunk(torch.empty(rows, 3), ranks)], and 0 for ranks that get no chunk.
TEST(Behaviour_A2, RowsAreThoseOfTorchChunk) {
  struct Case {
    int64_t rows;
    std::vector<int64_t> of_ranks;
  };
  for (const Case& c : {Case{8, {2, 2, 2, 2}}, Case{5, {2, 2, 1, 0}}, Case{6, {2, 2, 2, 0}}, Case{7, {3, 3, 1}},
                        Case{9, {3, 3, 3, 0}}, Case{1, {1, 0, 0, 0}}, Case{3, {2, 1}}, Case{257, {65, 65, 65, 62}},
                        Case{257, {129, 128}}, Case{10, {2, 2, 2, 2, 2, 0, 0, 0}}, Case{0, {0, 0}}, Case{5, {5}}}) {
    const auto ranks = static_cast<int64_t>(c.of_ranks.size());
    const Parameters parameters{{{4, 4}}, {{c.rows, 3}}, {{c.rows}}};
    const PlannedUnit unit = as_unit(parameters, per_parameter_layout(parameters, ranks));
    int64_t begin = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(std::to_string(c.rows) + " rows, rank " + std::to_string(rank));
      const int64_t rows = c.of_ranks[static_cast<size_t>(rank)];
      const ShardRange matrix = shard_range(unit, unit.parameters[1], rank);
      EXPECT_EQ(matrix, (ShardRange{3 * begin, 3 * (begin + rows)}));
      EXPECT_EQ(shard_shape(unit.parameters[1], matrix), (std::vector<int64_t>{rows, 3}));
      const ShardRange vector = shard_range(unit, unit.parameters[2], rank);
      EXPECT_EQ(vector, (ShardRange{begin, begin + rows}));
      EXPECT_EQ(shard_shape(unit.parameters[2], vector), (std::vector<int64_t>{rows}));
      begin += rows;
    }
  }
}

TEST(PerParameterLayout, TheExampleOfTheHeader) {
  const Parameters parameters{{{5, 2}}, {{4}}};
  const UnitLayout layout = per_parameter_layout(parameters, 3);
  ASSERT_EQ(layout.buffers.size(), 1U);
  EXPECT_EQ(layout.buffers[0].part, 2 * 2 + 2);
  EXPECT_EQ(layout.buffers[0].filled, 14);
  EXPECT_EQ(layout.buffers[0].copied_out, 16 + 6);  // the bias begins at 64 bytes
  EXPECT_EQ(layout.places, (std::vector<ParameterPlace>{{0, 0, PlannedChunk{0, 4}}, {0, 16, PlannedChunk{4, 2}}}));
  const PlannedUnit unit = as_unit(parameters, layout);
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(shard_offset(unit, unit.parameters[0], rank), 0);
    EXPECT_EQ(shard_offset(unit, unit.parameters[1], rank), 4);
  }
  EXPECT_EQ(padding_bytes(unit, 3), (3 * 6 - 14) * 4);
  EXPECT_EQ(padding_bound(unit, 3), (2 * 2 + 2 * 1) * 4);
}

/// One parameter: the parts, one after the other, are the parameter and padding behind it.
TEST(PerParameterLayout, ABufferOfOneParameterIsNotCopied) {
  const UnitLayout layout = per_parameter_layout(Parameters{{{5, 3}}}, 4);
  EXPECT_EQ(layout.buffers[0].part, 6);
  EXPECT_EQ(layout.buffers[0].copied_out, 0);
  EXPECT_EQ(layout.places[0], (ParameterPlace{0, 0, PlannedChunk{0, 6}}));
}

TEST(PerParameterLayout, OneRankHoldsAlignedParameters) {
  const Parameters parameters{{{5, 3}}, {{7}}};  // 60 bytes, then 28 at byte 64
  const UnitLayout layout = per_parameter_layout(parameters, 1);
  EXPECT_EQ(layout.buffers[0].part * 4, 92);
  EXPECT_EQ(layout.buffers[0].copied_out, 0);
  EXPECT_EQ(layout.places[1], (ParameterPlace{0, 16, PlannedChunk{16, 7}}));
  const PlannedUnit unit = as_unit(parameters, layout);
  EXPECT_LE(padding_bytes(unit, 1), padding_bound(unit, 1));
}

TEST(PerParameterLayout, OneBufferForEachDtypeAndTrainability) {
  const Parameters parameters{{{8, 4}, DType::kFloat32, true},
                              {{8, 4}, DType::kBFloat16, true},
                              {{8, 4}, DType::kFloat32, false},
                              {{8, 4}, DType::kFloat32, true}};
  const UnitLayout layout = per_parameter_layout(parameters, 2);
  ASSERT_EQ(layout.buffers.size(), 3U);
  EXPECT_EQ(layout.places[0], (ParameterPlace{0, 0, PlannedChunk{0, 16}}));
  EXPECT_EQ(layout.places[1], (ParameterPlace{1, 0, PlannedChunk{0, 16}}));
  EXPECT_EQ(layout.places[2], (ParameterPlace{2, 0, PlannedChunk{0, 16}}));
  EXPECT_EQ(layout.places[3], (ParameterPlace{0, 32, PlannedChunk{16, 16}}));
  EXPECT_EQ(layout.buffers[1].dtype, DType::kBFloat16);
  EXPECT_FALSE(layout.buffers[2].trainable);
}

/// What must hold of every layout: chunks fill the part, parameters do not overlap, every element has one owner.
TEST(PerParameterLayout, RandomUnits) {
  std::mt19937 random(5);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    Parameters parameters;
    const int64_t count = pick(1, 6);
    while (static_cast<int64_t>(parameters.size()) < count) {
      if (pick(0, 1) == 0) {
        parameters.push_back({{pick(0, 20)}});
      } else {
        parameters.push_back({{pick(0, 20), pick(0, 5), pick(1, 3)}});
      }
    }
    const int64_t ranks = pick(1, 9);
    const PlannedUnit unit = as_unit(parameters, per_parameter_layout(parameters, ranks));
    const PlannedBuffer& buffer = unit.buffers.front();
    int64_t in_part = 0;
    int64_t full = 0;
    for (const PlannedParameter& parameter : unit.parameters) {
      EXPECT_GE(parameter.chunk->offset, in_part);
      if (ranks > 1) {
        EXPECT_EQ(parameter.chunk->offset, in_part);
      }
      EXPECT_GE(parameter.offset, full);
      EXPECT_EQ(parameter.offset * 4 % 64, 0);
      in_part = parameter.chunk->offset + parameter.chunk->size;
      full = parameter.offset + parameter.chunk->size * ranks;
      int64_t next = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const ShardRange range = shard_range(unit, parameter, rank);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.end - range.begin, parameter.chunk->size);
        next = range.end;
      }
      EXPECT_EQ(next, numel(parameter.shape));
    }
    EXPECT_EQ(buffer.part, in_part);
    EXPECT_EQ(full, buffer.copied_out > 0 ? buffer.copied_out : buffer.part * ranks);
    EXPECT_LE(padding_bytes(unit, ranks), padding_bound(unit, ranks));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ", " << ranks << " ranks";
  }
}

}  // namespace
}  // namespace fsdp2
