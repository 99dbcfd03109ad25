// The table [fsdp] with overrides, and torchtitan's TOML and flags. Behind the separator: an override or a flag a line.
#include "adapters/config.hpp"
#include "property.hpp"
#include "registry/toml_reader.hpp"

namespace {

using fsdp2::GivenKeys;

/// Reads it as load_config_text() does, but opens no library and no file.
void read_own(const std::string& text, const std::vector<std::string>& overrides) {
  GivenKeys given = fsdp2::read_given(text, "host.toml");
  fsdp2::apply_overrides(given, overrides);
  const bool opens = given.contains("plugins") || given.contains("config") || given.contains("dialect");
  fsdp2::fuzz::check_config(opens ? fsdp2::resolve(given) : fsdp2::load_config_text(text, "host.toml", overrides));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fsdp2::fuzz::Input input(data, size);
  const std::vector<std::string> lines = fsdp2::fuzz::split_at(input.other.value_or(""), '\n');
  fsdp2::fuzz::or_error([&] { read_own(input.text, lines); });
  input.context.flags = lines;
  fsdp2::fuzz::check_dialects(input, "host.toml", {"torchtitan"});
  fsdp2::fuzz::check_detection(input.text, "host.toml");
  fsdp2::fuzz::check_detection(input.text, "flags.txt");
  return 0;
}
