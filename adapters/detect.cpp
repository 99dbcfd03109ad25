#include "adapters/detect.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "adapters/config_keys.hpp"
#include "adapters/fsdp1_names.hpp"
#include "adapters/yaml_block.hpp"

namespace fsdp2 {
namespace {

enum class By : uint8_t {
  kKey,     // the dotted key is there
  kPrefix,  // a dotted key begins so
  kPair,    // "key=value", of which the value begins so
  kName,    // the file's name holds it
};

struct Clue {
  std::string_view dialect;
  By by;
  std::string_view what;
  int weight;
};

/// 4: no other host has it. 2: others hardly have it. 1: fits, and fits others too.
constexpr std::array kClues{
    Clue{"accelerate", By::kKey, "distributed_type", 4},
    Clue{"accelerate", By::kKey, "compute_environment", 2},
    Clue{"accelerate", By::kPrefix, "fsdp_config.fsdp_", 1},
    Clue{"accelerate", By::kKey, "downcast_bf16", 2},
    Clue{"accelerate", By::kKey, "deepspeed_config", 1},
    Clue{"accelerate", By::kKey, "num_machines", 1},
    Clue{"accelerate", By::kKey, "machine_rank", 1},
    Clue{"accelerate", By::kKey, "main_training_function", 2},
    Clue{"accelerate", By::kPrefix, "ACCELERATE_", 4},
    Clue{"accelerate", By::kPrefix, "FSDP_", 4},
    Clue{"accelerate", By::kPrefix, "PARALLELISM_CONFIG_", 4},
    Clue{"accelerate", By::kKey, "fsdp_version", 4},
    Clue{"accelerate", By::kKey, "transformer_cls_names_to_wrap", 4},
    Clue{"accelerate", By::kKey, "mixed_precision_policy", 4},
    Clue{"accelerate", By::kName, "accelerate", 1},

    Clue{"transformers", By::kKey, "fsdp", 2},
    Clue{"transformers", By::kKey, "output_dir", 2},
    Clue{"transformers", By::kKey, "per_device_train_batch_size", 4},
    Clue{"transformers", By::kKey, "num_train_epochs", 2},
    Clue{"transformers", By::kKey, "gradient_checkpointing", 2},
    Clue{"transformers", By::kKey, "max_grad_norm", 1},
    Clue{"transformers", By::kKey, "learning_rate", 1},
    Clue{"transformers", By::kKey, "fsdp_config.transformer_layer_cls_to_wrap", 2},
    Clue{"transformers", By::kKey, "fsdp_config.min_num_params", 2},
    Clue{"transformers", By::kKey, "fsdp_config.cpu_ram_efficient_loading", 2},
    Clue{"transformers", By::kKey, "bf16", 1},
    Clue{"transformers", By::kKey, "fp16", 1},
    Clue{"transformers", By::kKey, "fsdp_config.xla", 4},
    Clue{"transformers", By::kPrefix, "fsdp_config.xla_fsdp", 4},
    Clue{"transformers", By::kKey, "transformer_layer_cls_to_wrap", 4},
    Clue{"transformers", By::kKey, "fsdp_transformer_layer_cls_to_wrap", 4},
    Clue{"transformers", By::kKey, "xla", 4},
    Clue{"transformers", By::kPrefix, "xla_fsdp", 4},
    Clue{"transformers", By::kKey, "cpu_ram_efficient_loading", 2},
    Clue{"transformers", By::kKey, "min_num_params", 2},
    Clue{"transformers", By::kKey, "version", 1},
    Clue{"transformers", By::kKey, "reshard_after_forward", 1},

    Clue{"torchtitan", By::kKey, "parallelism.data_parallel_shard_degree", 4},
    Clue{"torchtitan", By::kKey, "parallelism.data_parallel_replicate_degree", 4},
    Clue{"torchtitan", By::kKey, "parallelism.fsdp_reshard_after_forward", 4},
    Clue{"torchtitan", By::kPrefix, "training.data_parallel_", 4},
    Clue{"torchtitan", By::kKey, "training.fsdp_reshard_after_forward", 4},
    Clue{"torchtitan", By::kKey, "parallelism.tensor_parallel_degree", 2},
    Clue{"torchtitan", By::kKey, "training.tensor_parallel_degree", 2},
    Clue{"torchtitan", By::kKey, "training.mixed_precision_param", 4},
    Clue{"torchtitan", By::kKey, "training.enable_cpu_offload", 2},
    Clue{"torchtitan", By::kKey, "training.max_norm", 2},
    Clue{"torchtitan", By::kKey, "activation_checkpoint.mode", 4},
    Clue{"torchtitan", By::kKey, "job.dump_folder", 2},
    Clue{"torchtitan", By::kKey, "job.config_file", 2},
    Clue{"torchtitan", By::kKey, "model.flavor", 4},

    Clue{"deepspeed", By::kKey, "zero_optimization", 4},
    Clue{"deepspeed", By::kKey, "train_micro_batch_size_per_gpu", 4},
    Clue{"deepspeed", By::kKey, "train_batch_size", 2},
    Clue{"deepspeed", By::kKey, "bf16.enabled", 2},
    Clue{"deepspeed", By::kKey, "fp16.enabled", 2},
    Clue{"deepspeed", By::kKey, "zero_allow_untested_optimizer", 4},
    Clue{"deepspeed", By::kKey, "gradient_clipping", 1},
    Clue{"deepspeed", By::kKey, "steps_per_print", 2},
    Clue{"deepspeed", By::kKey, "wall_clock_breakdown", 2},
    Clue{"deepspeed", By::kName, "ds_config", 1},
    Clue{"deepspeed", By::kName, "deepspeed", 1},

    Clue{"lightning", By::kKey, "trainer.strategy", 4},
    Clue{"lightning", By::kKey, "fit.trainer.strategy", 4},
    Clue{"lightning", By::kKey, "trainer.strategy.class_path", 2},
    Clue{"lightning", By::kKey, "trainer.max_epochs", 1},
    Clue{"lightning", By::kKey, "trainer.precision", 1},
    Clue{"lightning", By::kKey, "model.class_path", 1},
    Clue{"lightning", By::kName, "lightning", 1},

    Clue{"composer", By::kKey, "fsdp_config.sharding_strategy", 2},
    Clue{"composer", By::kPair, "precision=amp_", 4},
    Clue{"composer", By::kKey, "max_duration", 4},
    Clue{"composer", By::kKey, "train_loader", 2},
    Clue{"composer", By::kKey, "global_train_batch_size", 2},
    Clue{"composer", By::kKey, "algorithms.gradient_clipping", 4},
    Clue{"composer", By::kPrefix, "fsdp_config.data_parallel_", 4},
    Clue{"composer", By::kKey, "fsdp_config.load_monolith_rank0_only", 4},
    Clue{"composer", By::kPair, "fsdp_config.mixed_precision=", 2},
    Clue{"composer", By::kPrefix, "parallelism_config.fsdp.", 4},
    Clue{"composer", By::kKey, "fsdp_config.activation_checkpointing_reentrant", 4},
    Clue{"composer", By::kKey, "fsdp_config.limit_all_gathers", 1},
    Clue{"composer", By::kName, "composer", 1},
    Clue{"composer", By::kName, "foundry", 1},

    Clue{"torchfort", By::kKey, "optimizer.parameters", 2},
    Clue{"torchfort", By::kKey, "optimizer.general", 4},
    Clue{"torchfort", By::kPair, "model.type=torchscript", 4},
    Clue{"torchfort", By::kKey, "model.parameters", 2},
    Clue{"torchfort", By::kKey, "general.report_frequency", 2},
    Clue{"torchfort", By::kKey, "general.enable_cuda_graphs", 4},
    Clue{"torchfort", By::kKey, "lr_scheduler.parameters", 2},
    Clue{"torchfort", By::kKey, "loss.type", 1},
    Clue{"torchfort", By::kName, "torchfort", 1},
};

/// Keywords that a table of FullyShardedDataParallel has at its top, and others that hand them through have too.
constexpr std::array<std::string_view, 4> kOnlyKeywords{"device_mesh", "ignored_states", "param_init_fn", "device_id"};

constexpr int kEnough = 4;  // to be sure
constexpr int kAhead = 2;   // of the second

std::optional<std::string> met(const Clue& clue, const ConfigKeys& keys, std::string_view name) {
  const std::string what(clue.what);
  switch (clue.by) {
    case By::kKey:
      if (keys.has(what)) return "the key `" + what + "`";
      break;
    case By::kPrefix:
      if (keys.has_prefix(what)) return "a key that begins with `" + what + "`";
      break;
    case By::kPair:
      if (keys.has_pair_prefix(what)) {
        const size_t equals = what.find('=');
        if (equals + 1 == what.size()) return "the word at `" + what.substr(0, equals) + "`";
        return "`" + what.substr(equals + 1) + "` at the key `" + what.substr(0, equals) + "`";
      }
      break;
    case By::kName:
      if (name.find(what) != std::string_view::npos) return "the file's name";
      break;
  }
  return std::nullopt;
}

class Detective {
 public:
  Detective(const ConfigKeys& keys, const std::string& file)
      : keys_(keys), name_(lower_case(file.substr(file.rfind('/') + 1))) {}

  std::vector<DialectCandidate> candidates() {
    for (const Clue& clue : kClues) {
      if (const auto evidence = met(clue, keys_, name_)) add(clue.dialect, clue.weight, *evidence);
    }
    for (const std::string_view keyword : fsdp1::kKeywords) {
      if (!keys_.has(keyword)) continue;
      const bool alone = std::find(kOnlyKeywords.begin(), kOnlyKeywords.end(), keyword) != kOnlyKeywords.end();
      add("torch_fsdp1", alone ? 4 : 2, "the key `" + std::string(keyword) + "`");
      if (alone || keyword == "mixed_precision") continue;
      // Its plugin, and the bare table of transformers, have keywords of the same names.
      add("accelerate", 1, "the key `" + std::string(keyword) + "`");
      add("transformers", 1, "the key `" + std::string(keyword) + "`");
    }
    // A name alone says nothing.
    std::erase_if(found_, [](const DialectCandidate& one) {
      return one.evidence == std::vector<std::string>{"the file's name"};
    });
    std::stable_sort(found_.begin(), found_.end(),
                     [](const DialectCandidate& a, const DialectCandidate& b) { return a.weight > b.weight; });
    return std::move(found_);
  }

 private:
  void add(std::string_view dialect, int weight, const std::string& evidence) {
    auto one = std::find_if(found_.begin(), found_.end(),
                            [&](const DialectCandidate& candidate) { return candidate.dialect == dialect; });
    if (one == found_.end()) one = found_.insert(found_.end(), DialectCandidate{dialect, 0, {}});
    one->weight += weight;
    one->evidence.push_back(evidence);
  }

  const ConfigKeys& keys_;
  std::string name_;
  std::vector<DialectCandidate> found_;
};

DialectGuess guess_by(const ConfigKeys& keys, const std::string& file) {
  DialectGuess guess;
  guess.candidates = Detective(keys, file).candidates();
  if (guess.candidates.empty()) {
    guess.reason = "it has no key by which a host could be told";
    if (keys.format == "text") guess.reason += "; as TOML, YAML or JSON it has no keys at all";
    return guess;
  }
  const int best = guess.candidates[0].weight;
  const int second = guess.candidates.size() > 1 ? guess.candidates[1].weight : 0;
  if (best >= kEnough && best >= second + kAhead) guess.dialect = guess.candidates[0].dialect;
  return guess;
}

}  // namespace

std::string DialectCandidate::explain() const {
  std::string text = std::string(dialect) + " (";
  const size_t shown = std::min<size_t>(evidence.size(), 3);
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + evidence[i];
  return text + (shown < evidence.size() ? ", ...)" : ")");
}

std::string DialectGuess::explain() const {
  std::string text = reason;
  for (const DialectCandidate& candidate : candidates) text += (text.empty() ? "" : "; ") + candidate.explain();
  return text;
}

DialectGuess detect_dialect(std::string_view text, const std::string& file) {
  const ConfigKeys keys = read_config_keys(text, file);
  if (keys.has_own_table) {
    DialectGuess guess;
    guess.is_own = true;
    guess.reason = "it has a table [fsdp], as this plugin's own files do";
    return guess;
  }
  return guess_by(keys, file);
}

DialectGuess detect_dialect(std::span<const HostKey> keys) {
  return guess_by(keys_of_list(keys), {});
}

}  // namespace fsdp2
