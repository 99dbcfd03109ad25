// Every dialect that takes a list of keys, name=value a line; values with lines of their own where the choice says so.
// And its text as that of a file of unknown format, such as the variables of an environment.
#include "adapters/adapters.hpp"
#include "property.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = fsdp2::fuzz;
  const fuzz::Input input(data, size);
  std::vector<fsdp2::HostKey> keys;
  for (const std::string& pair : fuzz::split_at(input.text, (input.choice & 8U) != 0 ? '\x1f' : '\n')) {
    fuzz::or_error([&] { keys.push_back(fsdp2::host_key_of(pair)); });
  }
  for (const fsdp2::Adapter& adapter : fsdp2::adapters()) {
    fuzz::or_error([&] {
      fuzz::check_translation(fsdp2::translate_keys(adapter.dialect, keys, "the host's keys", input.context),
                              input.context);
    });
  }
  fuzz::check_detection(input.text, "env.sh");
  return 0;
}
