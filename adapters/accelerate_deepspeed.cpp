// The launch file's DeepSpeed block: the fields that Accelerate fills into DeepSpeed's own settings, or their file.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "adapters/accelerate_input.hpp"
#include "adapters/accelerate_names.hpp"
#include "adapters/deepspeed.hpp"
#include "adapters/translator.hpp"
#include "registry/host_text.hpp"

namespace fsdp2::accelerate {
namespace {

using Kind = Setting::Kind;

Setting made_map(const std::string& key, const std::string& file) {
  Setting map;
  map.kind = Kind::kMap;
  map.source.file = file;
  map.source.key = key;
  map.source.translated = true;
  map.key_source = map.source;
  return map;
}

/// DeepSpeed's settings as Accelerate makes them. Each keeps the place and name it has in the launch file.
class DeepSpeedBlock : public Translator {
 public:
  DeepSpeedBlock(const Input& input, const std::string& file, const TranslationContext& context)
      : Translator(file), input_(input), context_(context) {}

  Translation run() {
    refuse_parallelism();
    for (const auto& [key, entry] : input_.deepspeed) {
      if (std::find(kDeepSpeedKeys.begin(), kDeepSpeedKeys.end(), key) == kDeepSpeedKeys.end()) {
        note(entry, unread_by("Accelerate", key, kDeepSpeedKeys));
      }
    }
    const Precision precision = read_precision(input_);
    const Setting* other = find_entry(input_.deepspeed, "deepspeed_config_file");
    Translation translation =
        other != nullptr && other->text != "none" ? from_file(*other, precision) : from_block(precision);
    translation.notes.insert(translation.notes.begin(), result_.notes.begin(), result_.notes.end());
    return translation;
  }

 private:
  void refuse_parallelism() const {
    for (const auto& [key, entry] : input_.parallelism) {
      if (!key.ends_with("_size") || as_int(entry) == 1 || entry.kind == Kind::kNull) continue;
      throw setting_fault(entry,
                          "is not possible with DeepSpeed: only data-parallel ranks are sharded, so it must be 1");
    }
  }

  Translation from_file(const Setting& named, const Precision& precision) {
    for (const std::string_view key : kBesideNoFile) {
      if (const Setting* entry = find_entry(input_.deepspeed, key)) {
        throw setting_fault(*entry,
                            "belongs into `" + named.text + "`: Accelerate refuses it beside `deepspeed_config_file`");
      }
    }
    if (find_entry(input_.top, "mixed_precision") != nullptr) {
      throw setting_fault(*precision.entry,
                          "belongs into `" + named.text + "`: Accelerate refuses it beside `deepspeed_config_file`");
    }
    if (!context_.read_file) throw setting_fault(named, "names a file, which cannot be read here");
    const std::string path = beside(file_, named.text);
    const Setting root = read_deepspeed(context_.read_file(path, named.source), path);
    if (find_member(root, "zero_optimization") == nullptr) {
      throw setting_fault(named, "has no `zero_optimization`, without which Accelerate refuses it");
    }
    return translate_deepspeed_settings(root, path, context_, DeepSpeedHost::kAccelerate);
  }

  /// The entry under DeepSpeed's key for it.
  static void add(Setting& map, const std::string& key, Setting entry) {
    entry.key = key;
    map.members.push_back(std::move(entry));
  }

  /// Accelerate's variables are text: a device in capitals is one, and only "true" is true.
  void add_device(Setting& zero, const std::string& key, std::string_view field) const {
    const Setting* entry = find_entry(input_.deepspeed, field);
    if (entry == nullptr) return;
    Setting device = *entry;
    device.kind = Kind::kText;
    device.text = lower_case(entry->text);
    Setting block = made_map(key, file_);
    add(block, "device", std::move(device));
    add(zero, key, std::move(block));
  }

  void add_clipping(Setting& root) {
    const Setting* entry = find_entry(input_.deepspeed, "gradient_clipping");
    if (entry == nullptr || entry->text == "auto") return;
    const std::optional<double> limit = as_number(*entry);
    if (!limit) throw setting_fault(*entry, "must be a number");
    if (*limit == 0) {
      note(*entry, "has no effect: Accelerate passes it over, and DeepSpeed then clips at 1.0");
      return;
    }
    Setting number = *entry;
    number.kind = Kind::kReal;
    number.real = *limit;
    add(root, "gradient_clipping", std::move(number));
  }

  Translation from_block(const Precision& precision) {
    Setting zero = made_map("zero_optimization", file_);
    if (const Setting* stage = find_entry(input_.deepspeed, "zero_stage")) {
      if (!as_int(*stage)) throw setting_fault(*stage, "must be 0, 1, 2 or 3");
      add(zero, "stage", *stage);
    } else {
      Setting standard = made_map("zero_stage", file_);
      standard.kind = Kind::kInt;
      standard.whole = 2;
      add(zero, "stage", std::move(standard));
    }
    add_device(zero, "offload_optimizer", "offload_optimizer_device");
    add_device(zero, "offload_param", "offload_param_device");
    if (const Setting* gather = find_entry(input_.deepspeed, "zero3_save_16bit_model")) {
      Setting flag = *gather;
      flag.kind = Kind::kBool;
      flag.flag = lower_case(gather->text) == "true";
      add(zero, "gather_16bit_weights_on_model_save", std::move(flag));
    }
    Setting root = made_map("", file_);
    add(root, "zero_optimization", std::move(zero));
    add_clipping(root);
    if (precision.name != "no") {
      if (precision.name == "fp8") note(*precision.entry, "is taken as bf16");
      const std::string name = precision.name == "fp16" ? "fp16" : "bf16";
      Setting on = *precision.entry;
      on.kind = Kind::kBool;
      on.flag = true;
      on.text = "True";
      Setting block = made_map(name, file_);
      add(block, "enabled", std::move(on));
      add(root, name, std::move(block));
    }
    return translate_deepspeed_settings(root, file_, context_, DeepSpeedHost::kAccelerate);
  }

  const Input& input_;
  const TranslationContext& context_;
};

}  // namespace

Translation translate_deepspeed_block(const Input& input, const std::string& file, const TranslationContext& context) {
  return DeepSpeedBlock(input, file, context).run();
}

}  // namespace fsdp2::accelerate
