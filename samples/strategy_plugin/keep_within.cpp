// A strategy for fsdp2-plugin, in a library of its own: of the units that wrap.policy chooses, the smallest stay whole
// after their forward, as many as fit into `keep_mib` together; the larger ones are resharded and gathered again for
// backward. So little memory buys away most of the gathers.
//   [fsdp]
//   plugins = ["libkeep_within.so"]
//   strategy = "sample.keep_within"
//   strategy_options.keep_mib = 64
#include <fsdp2/extension.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

struct Unit {
  size_t module;
  double bytes;
};

/// The units that the policy chooses, each with the bytes of its parameters.
std::vector<Unit> units_of(const fsdp2_plan_input& input) {
  std::vector<fsdp2_tree_module> modules(input.module_count);
  std::vector<Unit> units(input.module_count);
  for (size_t i = 0; i < modules.size(); ++i) {
    modules[i].struct_size = sizeof(fsdp2_tree_module);
    input.get_module(input.context, i, &modules[i]);
    units[i] = {i, 0};
  }
  for (size_t i = 0; i < input.parameter_count; ++i) {
    fsdp2_tree_parameter parameter{};
    parameter.struct_size = sizeof(parameter);
    input.get_parameter(input.context, i, &parameter);
    int64_t bytes = parameter.element_size;
    for (size_t d = 0; d < parameter.dims; ++d) bytes *= parameter.shape[d];
    size_t unit = parameter.holders[0];
    while (modules[unit].parent >= 0 && modules[unit].chosen == 0) unit = static_cast<size_t>(modules[unit].parent);
    units[unit].bytes += static_cast<double>(bytes);
  }
  // The root is a unit in any case, and its rule that of the options; one module with two paths is chosen once.
  const auto is_none = [&](const Unit& unit) {
    const fsdp2_tree_module& module = modules[unit.module];
    return unit.module == 0 || module.chosen == 0 || module.object != static_cast<int64_t>(unit.module);
  };
  units.erase(std::remove_if(units.begin(), units.end(), is_none), units.end());
  return units;
}

int32_t plan(void* /*user*/, const fsdp2_plan_input* input, const fsdp2_plan_output* output) {
  const char* option = input->get_option(input->context, "keep_mib");
  const double mib = option == nullptr ? 64 : std::atof(option);
  if (!(mib > 0)) {
    output->fail(output->context, FSDP2_CONFIG, "keep_mib must be a number above 0", "strategy_options.keep_mib");
    return 1;
  }
  std::vector<Unit> units = units_of(*input);
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.bytes < b.bytes; });
  double left = mib * 1024 * 1024;
  size_t kept = 0;
  for (const Unit& unit : units) {
    const bool keeps = unit.bytes <= left;
    if (keeps) left -= unit.bytes;
    if (keeps) ++kept;
    const fsdp2_unit_choice choice{sizeof(choice), unit.module, keeps ? 0 : 1};
    output->add_unit(output->context, &choice);
  }
  const std::string note = std::to_string(kept) + " of " + std::to_string(units.size()) + " units stay whole";
  output->add_note(output->context, note.c_str());
  return 0;
}

const char* const option_names[] = {"keep_mib"};
const fsdp2_strategy keep_within = {sizeof(fsdp2_strategy),
                                    "sample.keep_within",
                                    "full_shard, but the smallest units stay whole within a budget of memory",
                                    option_names,
                                    1,
                                    nullptr,
                                    plan};
const fsdp2_strategy* const strategies[] = {&keep_within};
const fsdp2_extension extension = {
    sizeof(fsdp2_extension), FSDP2_ABI_MAJOR, FSDP2_ABI_MINOR, "strategy_plugin", "1.0", strategies, 1, nullptr, 0};

}  // namespace

extern "C" __attribute__((visibility("default"))) const fsdp2_extension* fsdp2_extension_get(uint32_t abi_major) {
  return abi_major == FSDP2_ABI_MAJOR ? &extension : nullptr;
}
