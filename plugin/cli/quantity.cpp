#include "plugin/cli/quantity.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>

namespace fsdp2::cli {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};

constexpr double kKibi = 1024;
constexpr Suffix kBytes[] = {{"", 1},
                             {"B", 1},
                             {"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12},
                             {"KiB", kKibi},
                             {"MiB", kKibi* kKibi},
                             {"GiB", kKibi* kKibi* kKibi},
                             {"TiB", kKibi* kKibi* kKibi* kKibi}};
constexpr Suffix kRates[] = {{"B/s", 1},
                             {"KB/s", 1e3},
                             {"MB/s", 1e6},
                             {"GB/s", 1e9},
                             {"TB/s", 1e12},
                             {"MiB/s", kKibi* kKibi},
                             {"GiB/s", kKibi* kKibi* kKibi},
                             {"Mbit/s", 1e6 / 8},
                             {"Gbit/s", 1e9 / 8},
                             {"Tbit/s", 1e12 / 8}};
constexpr Suffix kNumbers[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
constexpr Suffix kSeconds[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/// Blanks around the suffix do not count.
double amount_of(const std::string& text, std::span<const Suffix> suffixes, const char* wanted,
                 double least = std::numeric_limits<double>::denorm_min()) {
  double number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (fault == std::errc() && std::isfinite(number) && number >= least) {
    for (const Suffix& suffix : suffixes) {
      if (suffix.text == rest) return number * suffix.factor;
    }
  }
  throw std::invalid_argument("\"" + text + "\" is not " + wanted);
}

}  // namespace

int64_t parse_bytes(const std::string& text) {
  constexpr double kMost = 1e18;
  const double bytes = amount_of(text, kBytes, "a size, like 80GiB or 512MB", 0);
  if (bytes > kMost) throw std::invalid_argument("\"" + text + "\" is more than any machine has");
  return static_cast<int64_t>(bytes);
}

double parse_rate(const std::string& text) {
  return amount_of(text, kRates, "a rate, like 300GB/s or 400Gbit/s");
}

double parse_number(const std::string& text) {
  return amount_of(text, kNumbers, "a number above 0, like 4e14 or 400T");
}

double parse_seconds(const std::string& text) {
  return amount_of(text, kSeconds, "a time, like 20us or 1ms", 0);
}

}  // namespace fsdp2::cli
