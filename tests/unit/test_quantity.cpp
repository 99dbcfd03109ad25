#include <gtest/gtest.h>

#include <stdexcept>

#include "plugin/cli/quantity.hpp"

namespace fsdp2::cli {
namespace {

TEST(Quantity, Bytes) {
  EXPECT_EQ(bytes_of("17"), 17);
  EXPECT_EQ(bytes_of("80GiB"), int64_t{80} << 30);
  EXPECT_EQ(bytes_of("1.5 KiB"), 1536);
  EXPECT_EQ(bytes_of("80GB"), 80'000'000'000);
  for (const char* text : {"", "GiB", "80Gib", "-1GiB", "0", "nan", "inf", "1e400", "80GiB ", "1e30TB", "80GiB/s"}) {
    EXPECT_THROW(bytes_of(text), std::invalid_argument) << text;
  }
}

TEST(Quantity, Rates) {
  EXPECT_EQ(rate_of("300GB/s"), 3e11);
  EXPECT_EQ(rate_of("400Gbit/s"), 5e10);
  EXPECT_THROW(rate_of("300GB"), std::invalid_argument);
}

TEST(Quantity, NumbersAndTimes) {
  EXPECT_EQ(number_of("400T"), 4e14);
  EXPECT_EQ(number_of("4e14"), 4e14);
  EXPECT_THROW(number_of("400TB"), std::invalid_argument);
  EXPECT_DOUBLE_EQ(seconds_of("20us"), 20e-6);
  EXPECT_DOUBLE_EQ(seconds_of("1.5ms"), 1.5e-3);
  EXPECT_THROW(seconds_of("20"), std::invalid_argument);
}

TEST(Quantity, AnErrorShowsWhatWouldBeRight) {
  try {
    rate_of("fast");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "\"fast\" is not a rate, like 300GB/s or 400Gbit/s");
  }
}

}  // namespace
}  // namespace fsdp2::cli
