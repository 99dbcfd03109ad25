// Where Accelerate's settings come from, brought to one set of names: those of the launch file.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "adapters/adapter.hpp"
#include "adapters/setting.hpp"

namespace fsdp2::accelerate {

struct Input {
  bool launched = true;  // by the file; else by its plugin's keywords and variables, whose defaults differ
  SettingsTable top;
  SettingsTable fsdp;
  SettingsTable parallelism;
  SettingsTable deepspeed;
};

/// Puts what the caller knows of the ranks over the file, as the launcher's command line would. Notes what gives way.
void put_counts(const RankCounts& ranks, Input& input, std::vector<std::string>& notes);

Input read_launch_file(std::string_view text, const std::string& file);

/// Keywords win over variables. Variables that are not Accelerate's are passed over: an environment has others too.
Input read_plugin_keys(std::span<const HostKey> keys, const std::string& name);

/// A keyword of the plugin, not a variable and not a key of the file.
bool is_keyword(const Input& input, const Setting& entry);

/// `distributed_type: DEEPSPEED`.
Translation translate_deepspeed_block(const Input& input, const std::string& file, const TranslationContext& context);

/// "no", "fp16", "bf16" or "fp8", and where it is said, null for nowhere.
struct Precision {
  std::string name = "no";
  const Setting* entry = nullptr;
};
Precision read_precision(const Input& input);

}  // namespace fsdp2::accelerate
