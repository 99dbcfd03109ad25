// The trainer's own part of train.toml: [model], [data], [train]. The table [fsdp] is the plugin's.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

enum class Loss { kCrossEntropy, kCausalLm, kMse };
enum class Optimizer { kAdamW, kSgd };

/// Token sequences in which the next token mostly follows from the last one.
struct Synthetic {
  int64_t vocab = 0;
  int64_t sequence = 0;
  int64_t samples = 0;
};

struct Config {
  std::string path;
  std::string script;  // a TorchScript file

  std::string data_file;  // a dict of tensors, or empty with `synthetic`
  std::string eval_file;  // or empty
  std::vector<std::string> inputs;
  std::string target;
  std::optional<Synthetic> synthetic;

  Loss loss = Loss::kCrossEntropy;
  Optimizer optimizer = Optimizer::kAdamW;
  double lr = 1e-3;
  double weight_decay = 0;
  double momentum = 0;
  int64_t steps = 0;
  int64_t batch_size = 0;  // of a rank, in one forward pass
  int64_t accumulate = 1;  // forward passes in a step
  int64_t seed = 0;
  int64_t threads = 0;  // of a rank; 0 = the machine's, divided among its ranks

  std::chrono::milliseconds meeting_limit{0};  // [fsdp] debug.timeout_s, for the meeting of the ranks too
  std::vector<std::string> fsdp_overrides;     // "key=value" below [fsdp], from --set

  /// Where a key stands ("train.toml:3:5: "), for errors found later.
  std::map<std::string, std::string> places;
  [[nodiscard]] const std::string& place(const std::string& key) const { return places.at(key); }
};

/// Paths in the file are relative to its folder. `sets` are "section.key=value" and win over the file. Throws
/// ConfigError.
Config load_config(const std::string& path, const std::vector<std::string>& sets);

/// `gradient.clip_norm` in the canonical TOML of the plugin's options.
std::optional<double> clip_norm_of(const std::string& options);

}  // namespace trainer
