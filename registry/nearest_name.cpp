#include "registry/nearest_name.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

namespace fsdp2 {
namespace {

std::string folded(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// Near is at most a third of the letters, and at least two edits for short names.
size_t limit_for(std::string_view a, std::string_view b) {
  return std::max<size_t>(2, std::max(a.size(), b.size()) / 3);
}

template <typename Names>
std::string nearest(std::string_view written, const Names& valid) {
  const std::string wanted = folded(written);
  size_t best = std::numeric_limits<size_t>::max();
  std::string_view found;
  for (const auto& candidate : valid) {
    const std::string_view name = candidate;
    const std::string other = folded(name);
    const size_t limit = limit_for(wanted, other);
    const size_t gap = std::max(wanted.size(), other.size()) - std::min(wanted.size(), other.size());
    if (gap > limit) continue;  // each letter more is an edit; and keys of a megabyte are not measured
    const size_t distance = edit_distance(wanted, other);
    // A name that shares no letter is no better than none ("a" for "b").
    if (distance > limit || distance >= std::max(wanted.size(), other.size())) continue;
    if (distance < best) {
      best = distance;
      found = name;
    }
  }
  if (!found.empty()) return std::string(found);
  // A part of a longer name: `policy` for `wrap.policy`. Only where it is clear which one is meant.
  if (wanted.size() < 3) return {};
  for (const auto& candidate : valid) {
    const std::string_view name = candidate;
    if (folded(name).find(wanted) == std::string::npos) continue;
    if (!found.empty()) return {};
    found = name;
  }
  return std::string(found);
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows suffice: the last two and the one being filled (optimal string alignment).
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view written, std::span<const std::string_view> valid) {
  return nearest(written, valid);
}

std::string nearest_name(std::string_view written, std::span<const std::string> valid) {
  return nearest(written, valid);
}

std::string did_you_mean(const std::string& nearest) {
  return nearest.empty() ? "" : "; did you mean `" + nearest + "`?";
}

std::string quoted_list(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += "\"" + std::string(name) + "\"";
  }
  return text;
}

}  // namespace fsdp2
