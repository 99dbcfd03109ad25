#include "property.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "adapters/adapters.hpp"
#include "adapters/detect.hpp"
#include "registry/consistency.hpp"
#include "registry/host_text.hpp"
#include "registry/mesh.hpp"
#include "registry/toml_reader.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2::fuzz {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::abort();
}

/// Another host may leave the classes to planning, and then options cannot be read back.
bool is_complete(const Config& config) {
  try {
    check_wrap_complete(config);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

Input::Input(const uint8_t* data, size_t size) {
  if (size == 0) return;
  choice = data[0];
  text.assign(data + 1, data + size);
  if (const size_t end = text.find(kSeparator); end != std::string::npos) {
    other = text.substr(end + 1);
    text.resize(end);
  }
  const int version = choice % 4;
  if (version == 1 || version == 2) context.version = version;
  if ((choice & 4U) != 0) context.environment["FSDP_VERSION"] = "2";
  if (other) {
    context.read_file = [this](const std::string&, const Source&) { return *other; };
  }
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void check_sentence(const std::string& sentence) {
  if (sentence.empty()) fail("nothing is said");
  try {
    check_host_text(sentence, "the sentence");
  } catch (const Error& error) {
    fail(std::string(error.what()) + ": " + sentence);
  }
}

void check_config(const Config& config) {
  if (!config.warning.empty()) check_sentence(config.warning);
  for (const std::string& note : config.notes) check_sentence(note);
  or_error([&] { check_supported(config, 8); });
  or_error([&] { mesh_of(config, 8, 4); });
  if (!is_complete(config)) return;
  const std::string printed = to_toml(config.options);
  const Fsdp2Options again = read_options(printed, "printed");
  if (to_toml(again) != printed) fail("printed anew it is other text:\n" + printed + to_toml(again));
  const bool has_nan = printed.find("= nan") != std::string::npos;  // equal to nothing
  if (again != config.options && !has_nan) fail("it reads back as other options:\n" + printed);
}

void check_translation(const Translation& translation, const TranslationContext& context) {
  if (translation.warning.empty() != translation.obsolete.empty()) fail("the warning and its keys do not fit");
  if (!translation.warning.empty()) check_sentence(translation.warning);
  for (const std::string& note : translation.notes) check_sentence(note);
  GivenKeys given;
  if (context.version) given["version"] = {*context.version, {}};
  check_config(resolve(given, translation.given));
}

void check_detection(const std::string& text, const std::string& file) {
  check_sentence(detect_dialect(text, file).explain());
}

void check_dialects(const Input& input, const std::string& file, const std::vector<std::string>& dialects) {
  for (const std::string& dialect : dialects) {
    or_error([&] { check_translation(find_translation(dialect)(input.text, file, input.context), input.context); });
  }
}

}  // namespace fsdp2::fuzz
