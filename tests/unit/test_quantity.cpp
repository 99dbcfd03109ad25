#include <gtest/gtest.h>

#include <stdexcept>

#include "plugin/cli/quantity.hpp"

namespace fsdp2::cli {
namespace {

TEST(Quantity, Bytes) {
  EXPECT_EQ(parse_bytes("17"), 17);
  EXPECT_EQ(parse_bytes("80GiB"), int64_t{80} << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("80GB"), 80'000'000'000);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_seconds("0s"), 0);
  EXPECT_THROW(parse_rate("0GB/s"), std::invalid_argument);
  for (const char* text : {"", "GiB", "80Gib", "-1GiB", "nan", "inf", "1e400", "80GiB ", "1e30TB", "80GiB/s"}) {
    EXPECT_THROW(parse_bytes(text), std::invalid_argument) << text;
  }
}

TEST(Quantity, Rates) {
  EXPECT_EQ(parse_rate("300GB/s"), 3e11);
  EXPECT_EQ(parse_rate("400Gbit/s"), 5e10);
  EXPECT_THROW(parse_rate("300GB"), std::invalid_argument);
}

TEST(Quantity, NumbersAndTimes) {
  EXPECT_EQ(parse_number("400T"), 4e14);
  EXPECT_EQ(parse_number("4e14"), 4e14);
  EXPECT_THROW(parse_number("400TB"), std::invalid_argument);
  EXPECT_DOUBLE_EQ(parse_seconds("20us"), 20e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("1.5ms"), 1.5e-3);
  EXPECT_THROW(parse_seconds("20"), std::invalid_argument);
}

TEST(Quantity, AnErrorShowsWhatWouldBeRight) {
  try {
    parse_rate("fast");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "\"fast\" is not a rate, like 300GB/s or 400Gbit/s");
  }
}

}  // namespace
}  // namespace fsdp2::cli
