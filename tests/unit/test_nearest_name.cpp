#include "registry/nearest_name.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

namespace fsdp2 {
namespace {

TEST(EditDistance, StatedValues) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);  // the optimal string alignment
}

// The definition, without a table.
size_t by_recursion(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  size_t best = by_recursion(a.substr(1), b.substr(1)) + (a[0] == b[0] ? 0 : 1);
  best = std::min({best, by_recursion(a.substr(1), b) + 1, by_recursion(a, b.substr(1)) + 1});
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]) {
    best = std::min(best, by_recursion(a.substr(2), b.substr(2)) + 1);
  }
  return best;
}

TEST(EditDistance, EqualsItsDefinition) {
  constexpr std::array<std::string_view, 6> kWords{"", "abcab", "bacba", "aab", "cabbac", "bbbac"};
  for (const auto a : kWords) {
    for (const auto b : kWords) EXPECT_EQ(edit_distance(a, b), by_recursion(a, b)) << a << " " << b;
  }
}

TEST(NearestName, FindsWhatWasMeant) {
  constexpr std::array<std::string_view, 5> kNames{"full_shard", "shard_grad_op", "wrap.policy", "wrap.modules",
                                                   "reshard_after_forward"};
  EXPECT_EQ(nearest_name("ful_shard", kNames), "full_shard");
  EXPECT_EQ(nearest_name("Full-Shard", kNames), "full_shard");
  EXPECT_EQ(nearest_name("policy", kNames), "wrap.policy");
  EXPECT_EQ(nearest_name("reshard", kNames), "reshard_after_forward");
  EXPECT_EQ(nearest_name("wrap", kNames), "");  // two would do
  EXPECT_EQ(nearest_name("banana", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
}

TEST(QuotedList, SeparatesByCommas) {
  constexpr std::array<std::string_view, 2> kNames{"a", "b"};
  EXPECT_EQ(quoted_list(kNames), R"("a", "b")");
}

}  // namespace
}  // namespace fsdp2
