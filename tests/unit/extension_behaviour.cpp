// An extension that does what it is told: a strategy by its option `does`, an adapter by the lines of its file.
#include <fsdp2/extension.h>

#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

using Text = std::ostringstream;

void add_note(const fsdp2_plan_output& output, const Text& text) {
  output.add_note(output.context, text.str().c_str());
}

/// A struct of a later version: what this plugin does not know must stay as it is.
template <typename Known>
struct Grown {
  Known known{};
  int64_t newer = 77;
  Grown() { known.struct_size = sizeof(*this); }
};

void note_modules(const fsdp2_plan_input& input, const fsdp2_plan_output& output) {
  for (size_t i = 0; i < input.module_count; ++i) {
    Grown<fsdp2_tree_module> grown;
    const int32_t result = input.get_module(input.context, i, &grown.known);
    const fsdp2_tree_module& m = grown.known;
    add_note(output, Text() << result << " " << m.path << " " << m.class_name << " " << m.parent << " " << m.object
                            << " " << m.has_forward << m.called << m.frozen << m.chosen << " " << grown.newer);
  }
}

void note_parameters(const fsdp2_plan_input& input, const fsdp2_plan_output& output) {
  for (size_t i = 0; i < input.parameter_count; ++i) {
    Grown<fsdp2_tree_parameter> grown;
    Text text;
    text << input.get_parameter(input.context, i, &grown.known);
    const fsdp2_tree_parameter& p = grown.known;
    for (size_t n = 0; n < p.name_count; ++n) text << " " << p.names[n];
    for (size_t d = 0; d < p.dims; ++d) text << " " << p.shape[d];
    text << " " << p.dtype << " " << p.element_size << " " << p.trainable << " held";
    for (size_t h = 0; h < p.holder_count; ++h) text << " " << p.holders[h];
    text << " read";
    for (size_t r = 0; r < p.reader_count; ++r) text << " " << p.readers[r];
    text << " " << grown.newer;
    add_note(output, text);
  }
}

void note_all(const fsdp2_plan_input& input, const fsdp2_plan_output& output) {
  add_note(output, Text() << input.world_size << " = " << input.replicate << " x " << input.shard);
  add_note(output, Text() << input.options);
  for (const char* name : {"does", "number", "real", "flag", "absent"}) {
    const char* value = input.get_option(input.context, name);
    add_note(output, Text() << name << " " << (value == nullptr ? "null" : value));
  }
  note_modules(input, output);
  note_parameters(input, output);
  fsdp2_tree_module module{};
  const int32_t too_small = input.get_module(input.context, 0, &module);
  module.struct_size = sizeof(module);
  const int32_t past = input.get_module(input.context, input.module_count, &module);
  fsdp2_tree_parameter parameter{};
  parameter.struct_size = sizeof(parameter);
  const int32_t past_too = input.get_parameter(input.context, input.parameter_count, &parameter);
  const bool refused = too_small != 0 && past != 0 && past_too != 0 && input.get_module(input.context, 0, nullptr) != 0;
  add_note(output, Text() << (refused ? "refused" : "not refused"));
}

/// "choose 3 0 4 1": module 3 stays whole, module 4 reshards.
void choose(const fsdp2_plan_output& output, std::istringstream& words) {
  fsdp2_unit_choice choice{};
  choice.struct_size = sizeof(choice);
  while (words >> choice.module >> choice.reshard_after_forward) output.add_unit(output.context, &choice);
}

int32_t plan(void* user, const fsdp2_plan_input* input, const fsdp2_plan_output* output) {
  if (std::strcmp(static_cast<const char*>(user), "user") != 0) return 99;
  const char* does = input->get_option(input->context, "does");
  std::istringstream words(does == nullptr ? "" : does);
  std::string verb;
  words >> verb;
  if (verb == "note") note_all(*input, *output);
  if (verb == "choose") choose(*output, words);
  if (verb == "mesh") {
    int64_t replicate = 0;
    int64_t shard = 0;
    words >> replicate >> shard;
    output->set_mesh(output->context, replicate, shard);
    words >> verb;
    choose(*output, words);
  }
  if (verb == "short") {
    const fsdp2_unit_choice choice{8, 0, 0};
    output->add_unit(output->context, &choice);
  }
  if (verb == "null") output->add_unit(output->context, nullptr);
  if (verb == "fail") {
    int32_t code = 0;
    words >> code;
    output->fail(output->context, code, "the model is too green", "strategy_options.does");
    output->fail(output->context, code, "not heard any more", nullptr);
  }
  if (verb == "throw") throw std::runtime_error("out of paint");
  if (verb == "throw_number") throw 7;  // NOLINT(*-exception-*)
  return verb == "return" ? 5 : 0;
}

int32_t translate(void* /*user*/, const fsdp2_translation_input* input, const fsdp2_translation_output* output) {
  std::istringstream lines(std::string(input->text, input->length));
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string verb;
    std::string key;
    std::string value;
    words >> verb >> key >> std::ws;
    std::getline(words, value);
    if (verb == "key") output->add_key(output->context, key.c_str(), value.c_str(), ("my_" + key).c_str(), number, 5);
    if (verb == "old") output->add_obsolete(output->context, key.c_str(), number);
    if (verb == "version") {
      const std::string text = std::string(input->file) + " to version " + std::to_string(input->version);
      output->add_note(output->context, text.c_str());
    }
    if (verb == "fail") output->fail(output->context, FSDP2_UNSUPPORTED, "cannot do this", key.c_str(), number, 6);
    if (verb == "throw") throw std::runtime_error("out of ink");
    if (verb == "return") return 3;
  }
  return 0;
}

char user[] = "user";
const char* const option_names[] = {"does", "number", "real", "flag"};
const fsdp2_strategy strategy = {
    sizeof(fsdp2_strategy), "zoo.obeys", "does what `does` says", option_names, 4, user, plan};
const fsdp2_strategy* const strategies[] = {&strategy};
const fsdp2_adapter adapter = {sizeof(fsdp2_adapter), "zoo", "lines of keys", nullptr, translate};
const fsdp2_adapter* const adapters[] = {&adapter};
const fsdp2_extension extension = {
    sizeof(fsdp2_extension), FSDP2_ABI_MAJOR, FSDP2_ABI_MINOR, "behaviour", "3.4", strategies, 1, adapters, 1};

}  // namespace

extern "C" __attribute__((visibility("default"))) const fsdp2_extension* fsdp2_extension_get(uint32_t abi_major) {
  return abi_major == FSDP2_ABI_MAJOR ? &extension : nullptr;
}
