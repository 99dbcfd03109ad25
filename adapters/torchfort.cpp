// TorchFort's YAML. It has no keys for sharding, but ignores blocks that it does not know: a block `fsdp` with our own
// keys can live in its file.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/entry_reading.hpp"
#include "adapters/translation_draft.hpp"
#include "registry/keys.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 4> kFortGeneral{"report_frequency", "enable_wandb_hook", "verbose",
                                                       "enable_cuda_graphs"};
constexpr std::array<std::string_view, 2> kFortOptimizers{"adam", "sgd"};
constexpr std::array<std::string_view, 6> kFortAdam{"learning_rate", "beta1", "beta2",
                                                    "weight_decay",  "eps",   "amsgrad"};
constexpr std::array<std::string_view, 5> kFortSgd{"learning_rate", "momentum", "dampening", "weight_decay",
                                                   "nesterov"};
constexpr std::array<std::string_view, 2> kFortStep{"grad_accumulation_steps", "max_grad_norm"};
/// Keys of [fsdp] that say where to look before a file is read.
constexpr std::array<std::string_view, 3> kOutsideOnly{"dialect", "config", "plugins"};

/// As TorchFort compares names: lower case, without spaces.
std::string fort_name(std::string_view name) {
  std::string text = lower_case(name);
  std::erase(text, ' ');
  return text;
}

class FortTranslator {
 public:
  FortTranslator(std::string_view text, const std::string& file) : root_(read_yaml(text, file)), draft_(file) {}

  Translation run() {
    const YamlBlock top = table_of(root_, "");
    check_model(top);
    const YamlBlock general = parameters(child_of(root_, "general"), "general", kFortGeneral);
    const Setting& optimizer = child_of(root_, "optimizer");
    check_optimizer(optimizer);
    const YamlBlock step = parameters(child_of(optimizer, "general"), "optimizer.general", kFortStep);
    const Setting& own = child_of(root_, "fsdp");
    collect_own(table_of(own, "fsdp"), own, "", 0);
    emit_clipping(step);
    const YamlEntry* graphs = find_entry(general, "enable_cuda_graphs");
    if (graphs != nullptr && fort_flag(*graphs)) {
      draft_.note(*graphs, "does not go with sharding: captured graphs need tensors that stay where they are");
    }
    return draft_.finish();
  }

 private:
  /// A block whose keys TorchFort checks.
  YamlBlock parameters(const Setting& node, const std::string& name, Names known) const {
    YamlBlock block;
    for (const auto& [key, entry] : table_of(node, name)) {
      const std::string sane = fort_name(key);
      if (std::find(known.begin(), known.end(), sane) == known.end()) {
        throw error_at(entry.key_source, key, "TorchFort knows no key `" + key + "` in `" + name + "`",
                       nearest_name(sane, known));
      }
      block.insert_or_assign(sane, entry);
    }
    return block;
  }

  void check_model(const YamlBlock& top) const {
    if (find_entry(top, "model") == nullptr && find_entry(top, "algorithm") == nullptr) {
      Source source;
      source.file = draft_.file();
      throw error_at(source, "model", "the block `model` (or `algorithm`) is missing: this is no file of TorchFort");
    }
    const YamlBlock model = table_of(child_of(root_, "model"), "model");
    const YamlEntry* type = find_entry(model, "type");
    if (type == nullptr || fort_name(type->text) != "torchscript") return;
    for (const auto& [key, entry] : table_of(child_of(child_of(root_, "model"), "parameters"), "parameters")) {
      if (fort_name(key) == "filename" && !entry.text.empty()) return;
    }
    throw setting_fault(*type, "needs `parameters.filename`, the TorchScript file");
  }

  void check_optimizer(const Setting& optimizer) const {
    const YamlBlock block = table_of(optimizer, "optimizer");
    const YamlEntry* type = find_entry(block, "type");
    if (block.empty()) return;
    if (type == nullptr) {
      throw error_at(find_entry(table_of(root_, ""), "optimizer")->source, "type", "`optimizer` has no `type`");
    }
    const std::string name = fort_name(type->text);
    if (name != "adam" && name != "sgd") {
      throw setting_fault(*type, "must be one of " + quoted_list(kFortOptimizers), nearest_name(name, kFortOptimizers));
    }
    parameters(child_of(optimizer, "parameters"), "optimizer.parameters", name == "adam" ? Names(kFortAdam) : kFortSgd);
  }

  static bool fort_flag(const YamlEntry& entry) {
    if (entry.kind == YamlEntry::Kind::kInt) return entry.whole != 0;
    return entry_flag(entry);
  }

  void emit_clipping(const YamlBlock& step) {
    const YamlEntry* norm = find_entry(step, "max_grad_norm");
    if (norm == nullptr) return;
    YamlEntry value = *norm;
    if (value.kind == YamlEntry::Kind::kList && !value.list.empty()) {  // TorchFort takes the first
      value.kind = YamlEntry::Kind::kText;
      value.text = value.list.front();
    }
    const double limit = entry_number(value);
    if (!(limit > 0)) return;
    if (draft_.has("gradient.clip_norm")) {
      draft_.note(*norm, "gives way to `gradient.clip_norm` of the block `fsdp`");
    } else {
      draft_.emit("gradient.clip_norm", limit, norm);
    }
  }

  /// The keys of our own block, in tables or dotted.
  void collect_own(const YamlBlock& block, const Setting& node, const std::string& prefix, int depth) {
    for (const auto& [name, entry] : block) {
      const std::string key = prefix + name;
      if (entry.kind == YamlEntry::Kind::kNull) continue;
      if (entry.kind == YamlEntry::Kind::kMap && depth < 3) {
        const Setting& inner = child_of(node, name);
        collect_own(table_of(inner, key), inner, key + ".", depth + 1);
        continue;
      }
      take_own(key, entry);
    }
  }

  void take_own(const std::string& key, const YamlEntry& entry) {
    if (std::find(kOutsideOnly.begin(), kOutsideOnly.end(), key) != kOutsideOnly.end()) {
      throw error_at(entry.key_source, key, "`" + key + "` belongs into the table [fsdp] of a TOML file");
    }
    const KeySpec* spec = find_key(key);
    if (spec == nullptr) throw error_at(entry.key_source, key, "`fsdp` has no key `" + key + "`", nearest_key(key));
    std::optional<ValueFault> fault;
    for (const Value& value : meanings(entry)) {
      Fsdp2Options scratch;
      fault = spec->take(scratch, value);
      if (fault) continue;
      Source source = entry.source;
      source.key = key;
      draft_.emit(key, value, source);
      return;
    }
    throw error_at(
        entry.source, key,
        "`" + key + "` must be " + std::string(spec->allowed) + (fault ? ", " + fault->sentence : ", not a map"),
        fault ? fault->nearest : "");
  }

  /// The values that an entry can stand for. "1e8" is text to YAML 1.1.
  static std::vector<Value> meanings(const YamlEntry& entry) {
    switch (entry.kind) {
      case YamlEntry::Kind::kBool:
        return {entry.flag};
      case YamlEntry::Kind::kInt:
        return {entry.whole};
      case YamlEntry::Kind::kReal:
        return {entry.real};
      case YamlEntry::Kind::kList:
        return {entry.list};
      case YamlEntry::Kind::kText: {
        const std::optional<double> number = number_in(entry.text);
        return number ? std::vector<Value>{*number, entry.text} : std::vector<Value>{entry.text};
      }
      default:
        return {};
    }
  }

  Setting root_;
  TranslationDraft draft_;
};

}  // namespace

Translation translate_torchfort(std::string_view text, const std::string& file, const TranslationContext&) {
  return FortTranslator(text, file).run();
}

}  // namespace fsdp2
