#include "samples/host_trainer/config.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "samples/host_trainer/nearest.hpp"
#include "samples/host_trainer/section.hpp"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

const Strings kSections = {"model", "data", "train", "fsdp"};
const Strings kModelKeys = {"script"};
const Strings kDataKeys = {"file", "inputs", "target", "eval_file", "synthetic"};
const Strings kSyntheticKeys = {"vocab", "sequence", "samples"};
const Strings kTrainKeys = {"loss",  "optimizer",  "lr",         "weight_decay", "momentum",
                            "steps", "batch_size", "accumulate", "seed",         "threads"};
const Strings kLosses = {"cross_entropy", "causal_lm", "mse"};
const Strings kOptimizers = {"adamw", "sgd"};

toml::table parse_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw ConfigError(path + ": is a folder, not a TOML file.");
  if (!fs::exists(path, error)) throw ConfigError(path + ": no such configuration file.");
  try {
    return toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    throw ConfigError(place_of(e.source()) + std::string(e.description()) + '.');
  }
}

/// One --set as a table. A value that is not TOML is taken as a string, so that a shell need not quote twice.
toml::table parse_set(const std::string& set) {
  const size_t equals = set.find('=');
  const std::string key = set.substr(0, equals);
  const std::string name = "--set " + set;
  if (equals == std::string::npos || key.find('.') == std::string::npos)
    throw ConfigError(name + ": must be section.key=value, for example --set train.steps=10.");
  try {
    return toml::parse(set, name);
  } catch (const toml::parse_error&) {
  }
  std::string quoted;
  for (char c : set.substr(equals + 1)) quoted += (c == '"' || c == '\\') ? std::string{'\\', c} : std::string{c};
  try {
    return toml::parse(key + "=\"" + quoted + '"', name);
  } catch (const toml::parse_error& e) {
    throw ConfigError(name + ": " + std::string(e.description()) + '.');
  }
}

/// `from` wins. Nodes are moved: a copied node forgets where it stood.
void merge(toml::table& into, toml::table&& from) {
  for (auto&& [key, value] : from) {
    toml::table* old = into.get_as<toml::table>(key.str());
    if (old && value.is_table()) {
      merge(*old, std::move(*value.as_table()));
      continue;
    }
    into.erase(key.str());  // the key of what wins says where it stands
    std::move(value).visit(
        [&, &key = key](auto&& node) { into.insert_or_assign(key, std::forward<decltype(node)>(node)); });
  }
}

/// The plugin checks the key; what it will refuse counts as not given.
std::chrono::milliseconds meeting_limit(toml::table& root) {
  constexpr double kDefault = 300;
  constexpr double kMost = 1e9;
  const double given = root.at_path("fsdp.debug.timeout_s").value<double>().value_or(kDefault);
  const double seconds = given > 0 && given < kMost ? given : kDefault;
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

class Reader {
 public:
  Reader(const toml::table& root, Config& config) : root_(root), config_(config) {
    for (const auto& [key, value] : root_) {
      const std::string name(key.str());
      if (std::find(kSections.begin(), kSections.end(), name) == kSections.end())
        throw ConfigError(place_of(key.source()) + "unknown section [" + name + ']' + did_you_mean(name, kSections) +
                          " The sections are: " + join(kSections) + ".");
      if (!value.is_table())
        throw ConfigError(place_of(value.source()) + '"' + name + "\" must be a table, [" + name + "].");
    }
  }

  void read() {
    model();
    train();
    data();
  }

 private:
  Section section(const std::string& name, const Strings& keys) {
    const toml::table* table = root_.get_as<toml::table>(name);
    if (!table)
      throw ConfigError(config_.path + ":1:1: the section [" + name + "] is missing. It knows: " + join(keys) + ".");
    Section section(*table, name, keys);
    for (const std::string& key : keys) config_.places[name + '.' + key] = section.place(key);
    return section;
  }

  /// An existing file, relative to the configuration's folder.
  std::string file(const Section& section, const std::string& key, const std::string& meaning, bool required) {
    const auto text = section.text(key);
    if (!text) {
      if (required) section.missing(key, meaning);
      return "";
    }
    const fs::path path = fs::path(config_.path).parent_path() / *text;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) section.fail(key, "names " + path.string() + ", which is not there.");
    return path.string();
  }

  void model() {
    const Section s = section("model", kModelKeys);
    config_.script = file(s, "script", "the file of a TorchScript module", true);
  }

  void data() {
    const Section s = section("data", kDataKeys);
    if (s.has("file") == s.has("synthetic"))
      throw ConfigError(s.place("synthetic") +
                        "[data] needs either \"file\", the path of a dict of tensors saved by "
                        "torch.save, or \"synthetic = {vocab, sequence, samples}\"" +
                        (s.has("file") ? ", not both." : "."));
    config_.eval_file = file(s, "eval_file", "", false);
    if (const toml::table* table = s.table("synthetic")) {
      synthetic(s, Section(*table, "data.synthetic", kSyntheticKeys));
      return;
    }
    config_.data_file = file(s, "file", "", true);
    const auto inputs = s.texts("inputs");
    if (!inputs) s.missing("inputs", "the names of the tensors that forward() takes, in order");
    config_.inputs = *inputs;
    const auto target = s.text("target");
    if (!target && config_.loss != Loss::kCausalLm)
      s.missing("target", "the name of the tensor the loss compares with");
    config_.target = target.value_or(config_.inputs.front());
  }

  void synthetic(const Section& data, const Section& s) {
    for (const char* key : {"inputs", "target", "eval_file"})
      if (data.has(key)) data.fail(key, "has no meaning with \"data.synthetic\".");
    if (config_.loss == Loss::kMse)
      throw ConfigError(config_.place("train.loss") +
                        "\"train.loss\" = \"mse\" needs real targets: synthetic data are tokens.");
    for (const std::string& key : kSyntheticKeys)
      if (!s.has(key)) s.missing(key, "an integer");
    constexpr int64_t kMost = 1 << 30;
    config_.synthetic =
        Synthetic{*s.integer("vocab", 2, kMost), *s.integer("sequence", 2, kMost), *s.integer("samples", 1, kMost)};
  }

  void train() {
    const Section s = section("train", kTrainKeys);
    const auto loss = s.choice("loss", kLosses);
    if (!loss) s.missing("loss", "one of " + join(kLosses));
    config_.loss = *loss == "mse" ? Loss::kMse : *loss == "causal_lm" ? Loss::kCausalLm : Loss::kCrossEntropy;
    config_.optimizer =
        s.choice("optimizer", kOptimizers).value_or("adamw") == "sgd" ? Optimizer::kSgd : Optimizer::kAdamW;
    config_.lr = s.number("lr").value_or(1e-3);
    config_.weight_decay = s.number("weight_decay").value_or(0);
    config_.momentum = s.number("momentum").value_or(0);
    if (config_.momentum > 0 && config_.optimizer == Optimizer::kAdamW)
      s.fail("momentum", "is for \"train.optimizer\" = \"sgd\" only.");
    constexpr int64_t kMost = 1'000'000'000;
    const auto steps = s.integer("steps", 1, kMost);
    const auto batch_size = s.integer("batch_size", 1, kMost);
    if (!steps) s.missing("steps", "the number of optimizer steps");
    if (!batch_size) s.missing("batch_size", "the samples of one rank in one forward pass");
    config_.steps = *steps;
    config_.batch_size = *batch_size;
    config_.accumulate = s.integer("accumulate", 1, kMost).value_or(1);
    config_.seed = s.integer("seed", 0).value_or(0);
    config_.threads = s.integer("threads", 1, 4096).value_or(0);
  }

  const toml::table& root_;
  Config& config_;
};

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& sets) {
  Config config;
  config.path = path;
  toml::table root = parse_file(path);
  for (const std::string& set : sets) {
    if (set.starts_with("fsdp.") && set.find('=') != std::string::npos) config.fsdp_overrides.push_back(set.substr(5));
    merge(root, parse_set(set));
  }
  Reader(root, config).read();
  config.meeting_limit = meeting_limit(root);
  return config;
}

std::optional<double> clip_norm_of(const std::string& options) {
  return toml::parse(options).at_path("fsdp.gradient.clip_norm").value<double>();
}

}  // namespace trainer
