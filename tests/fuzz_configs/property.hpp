// What must hold whatever a configuration's text is: it ends as options that can be printed and read again, or as an
// Error that says something. Anything else ends the process, which is how a fuzzer knows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/adapter.hpp"
#include "registry/config.hpp"

namespace fsdp2::fuzz {

/// Out of a fuzzer's bytes. The first one says what a caller knows beside the file; the text goes to the first
/// kSeparator, and behind it is another file that this one may name, or what stands on a command line.
struct Input {
  std::string text;
  std::optional<std::string> other;
  TranslationContext context;
  uint8_t choice = 0;

  Input(const uint8_t* data, size_t size);
};

inline constexpr char kSeparator = '\x1e';  // of records, in ASCII

std::vector<std::string> split_at(const std::string& text, char separator);

/// Of what a person is to read: not empty, and UTF-8.
void check_sentence(const std::string& sentence);

void check_config(const Config& config);

/// With the version that the caller asks for.
void check_translation(const Translation& translation, const TranslationContext& context);

void check_detection(const std::string& text, const std::string& file);

/// By the adapter of each dialect.
void check_dialects(const Input& input, const std::string& file, const std::vector<std::string>& dialects);

/// Runs what may throw Error.
template <typename Call>
void or_error(Call call) {
  try {
    call();
  } catch (const Error& error) {
    check_sentence(error.what());
  }
}

}  // namespace fsdp2::fuzz
