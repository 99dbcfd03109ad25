#include "registry/toml_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <variant>
#include <vector>

#include "registry/keys.hpp"

namespace fsdp2 {
namespace {

std::string quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 0xFU];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// The shortest digits that read back to the same number. TOML tells floats from integers by a point or an exponent.
std::string number(double value) {
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

struct Printer {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const std::vector<std::string>& values) const {
    std::string out = "[";
    for (const std::string& value : values) {
      if (out.size() > 1) out += ", ";
      out += quoted(value);
    }
    return out + "]";
  }
};

std::vector<std::string> wrap_entries(const WrapOptions& wrap) {
  constexpr std::string_view kPrefix = "wrap.";
  Fsdp2Options options;
  options.wrap = wrap;
  std::vector<std::string> entries;
  for (const KeySpec& spec : key_specs()) {
    Value value;
    if (!spec.name.starts_with(kPrefix) || !spec.give(options, value)) continue;
    entries.push_back(std::string(spec.name.substr(kPrefix.size())) + " = " + value_text(value));
  }
  return entries;
}

}  // namespace

std::string to_toml(const Fsdp2Options& options) {
  std::string text = "[fsdp]\n";
  for (const KeySpec& spec : key_specs()) {
    Value value;
    if (spec.give(options, value)) text += std::string(spec.name) + " = " + value_text(value) + "\n";
  }
  for (const auto& [name, value] : options.strategy_options) {
    text += "strategy_options." + name + " = " + value_text(value) + "\n";
  }
  return text;
}

std::string wrap_to_toml(const WrapOptions& wrap) {
  std::string text = "[fsdp.wrap]\n";
  for (const std::string& entry : wrap_entries(wrap)) text += entry + "\n";
  return text;
}

std::string wrap_to_inline_toml(const WrapOptions& wrap) {
  std::string text;
  for (const std::string& entry : wrap_entries(wrap)) text += (text.empty() ? "{ " : ", ") + entry;
  return text + " }";
}

std::string value_text(const StrategyOption& option) {
  return std::visit(Printer{}, option);
}

std::string value_text(const Value& value) {
  return std::visit(Printer{}, value);
}

}  // namespace fsdp2
