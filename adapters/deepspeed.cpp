// DeepSpeed's JSON. ZeRO has no units to wrap and, but for MiCS, no mesh of two dimensions: no keys of either are
// given.
#include "adapters/deepspeed.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "adapters/adapters.hpp"
#include "adapters/deepspeed_block.hpp"
#include "adapters/json_settings.hpp"
#include "adapters/translator.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using namespace deepspeed;
using Kind = Setting::Kind;

constexpr std::array<std::string_view, 3> kDevices{"none", "cpu", "nvme"};

class DeepSpeedTranslator : public Translator {
 public:
  DeepSpeedTranslator(const Setting& root, const std::string& file, const TranslationContext& context,
                      DeepSpeedHost host)
      : Translator(file), root_(root), host_(host) {
    if (root.kind != Kind::kMap) throw error_at(root.source, {}, "the file must be a map");
    if (context.version && *context.version != 2) {
      Source source;
      source.file = file;
      throw error_at(source, "version", "DeepSpeed's settings cannot be converted to version 1");
    }
  }

  Translation run() {
    emit("version", int64_t{2});
    read_stage();
    read_offload();
    read_saving();
    read_precision();
    read_gradients();
    read_other_parallelism();
    note_set();
    return std::move(result_);
  }

 private:
  /// At the top, "auto" stays text and null stays.
  const Setting* top(std::string_view key) const { return find_member(root_, key); }

  static Setting zero_map(const Setting* zero) {
    Setting map;
    map.kind = Kind::kMap;
    if (zero == nullptr || zero->kind == Kind::kBool) return map;
    return *zero;
  }

  void take_remarks(const Block& block) {
    for (const Block::Remark& remark : block.remarks()) note(remark.setting, remark.sentence);
  }

  void read_stage() {
    const Setting* old = top("zero_optimization");
    int64_t stage = zero_.whole("stage", 0);
    const Setting* entry = zero_.find("stage");
    if (old != nullptr && old->kind == Kind::kBool) {
      stage = old->flag ? 1 : 0;
      entry = old;
      note(*old, std::string("is the old form, taken as stage ") + (old->flag ? "1" : "0"));
    }
    if (stage < 0 || stage > 3) throw setting_fault(*entry, "must be 0, 1, 2 or 3");
    stage_ = stage;
    take_remarks(zero_);
    if (stage == 1) note(*entry, "is taken as stage 2: gradients are sharded too");
    if (stage == 0) emit("strategy", std::string("no_shard"), entry), emit("reshard_after_forward", false, entry);
    if (stage == 1 || stage == 2) emit_sharding(false, false, entry);
    if (stage == 3) read_partitions(entry);
    if (stage == 3) return;
    if (zero_.whole("zero_hpz_partition_size", 1) > 1) note_without_stage_3("zero_hpz_partition_size");
    if (zero_.whole("mics_shard_size", -1) > 0) note_without_stage_3("mics_shard_size");
  }

  void note_without_stage_3(std::string_view field) { note(*zero_.find(field), "has no effect below stage 3"); }

  void read_partitions(const Setting* stage) {
    const int64_t ranks = zero_.whole("zero_hpz_partition_size", 1);
    const int64_t mics = zero_.whole("mics_shard_size", -1);
    emit_sharding(true, mics > 0, mics > 0 ? zero_.find("mics_shard_size") : stage);
    if (mics > 0) {
      emit("mesh.shard", mics, zero_.find("mics_shard_size"));
      emit("mesh.replicate", int64_t{-1}, zero_.find("mics_shard_size"));
      if (ranks > 1) note(*zero_.find("zero_hpz_partition_size"), "has no effect beside mics_shard_size");
    } else if (ranks > 1) {
      emit("reshard_after_forward", ranks, zero_.find("zero_hpz_partition_size"));
    }
  }

  struct Offload {
    bool on_cpu = false;
    bool pinned = true;
    const Setting* device = nullptr;  // or the old field that says so
    const Setting* pin = nullptr;
  };

  /// `name`: the block; `old`: the deprecated field that stands for it.
  Offload offload_of(const Block& block, const std::string& name, std::string_view old) {
    take_remarks(block);
    Offload offload;
    if (const Setting* deprecated = zero_.present(old)) {
      if (zero_.present(name) != nullptr) throw setting_fault(*deprecated, "cannot stand beside `" + name + "`");
      note(*deprecated, "is deprecated: use `" + name + "`");
      offload.on_cpu = zero_.is_on(old);
      offload.device = deprecated;
      return offload;
    }
    if (const Setting* device = block.present("device")) {
      const bool known =
          device->kind == Kind::kText && std::find(kDevices.begin(), kDevices.end(), device->text) != kDevices.end();
      if (!known) {
        throw setting_fault(*device, "must be one of " + quoted_list(kDevices), nearest_name(device->text, kDevices));
      }
      if (device->text == "nvme") throw setting_fault(*device, "is not possible here: parameters offload to \"cpu\"");
      offload.on_cpu = device->text == "cpu";
      offload.device = device;
    }
    offload.pinned = block.is_on("pin_memory", true);
    offload.pin = block.find("pin_memory");
    return offload;
  }

  Block offload_block(const std::string& name, std::span<const Field> fields) const {
    const Setting* entry = zero_.find(name);
    Setting none;
    none.kind = Kind::kMap;
    const std::string path = entry == nullptr ? name : entry->source.key;
    return {entry == nullptr ? none : *entry, path, fields};
  }

  void read_offload() {
    const Block parameters = offload_block("offload_param", kOffloadParamFields);
    const Block optimizer = offload_block("offload_optimizer", kOffloadOptimizerFields);
    const Offload param = offload_of(parameters, "offload_param", "cpu_offload_param");
    const Offload optim = offload_of(optimizer, "offload_optimizer", "cpu_offload");
    if (const Setting* pin = zero_.present("cpu_offload_use_pin_memory")) {
      note(*pin, "has no effect: DeepSpeed drops it; use `pin_memory` of the offload block");
    }
    const Setting* share = optimizer.find("ratio");
    if (share != nullptr && as_number(*share) < 1.0) {
      if (stage_ < 3) throw setting_fault(*share, "needs stage 3: a part is offloaded there only");
      note(*share, "cannot be expressed: all of it is offloaded, or nothing");
    }
    const bool params = stage_ == 3 && param.on_cpu;
    const bool states = stage_ >= 1 && optim.on_cpu;
    if (param.on_cpu && !params) note(*param.device, "has no effect below stage 3");
    if (optim.on_cpu && !states) note(*optim.device, "has no effect at stage 0");
    if (!params && !states) return;
    if (stage_ == 3 && zero_.whole("mics_shard_size", -1) > 0) {
      throw setting_fault(*zero_.find("mics_shard_size"),
                          "cannot be joined with offloading: DeepSpeed fails in its first step");
    }
    const Offload& counts = params ? param : optim;
    if (!params) note(*optim.device, "is taken as offload.params = true: optimizer states do not offload alone");
    emit("offload.params", true, counts.device);
    emit("offload.pin_memory", counts.pinned, counts.pin);
  }

  void read_saving() {
    const Setting* gather = zero_.present("gather_16bit_weights_on_model_save");
    bool full = zero_.is_on("gather_16bit_weights_on_model_save");
    if (const Setting* old = zero_.present("stage3_gather_fp16_weights_on_model_save")) {
      if (gather != nullptr) throw setting_fault(*old, "cannot stand beside `" + gather->source.key + "`");
      note(*old, "is deprecated: use `stage3_gather_16bit_weights_on_model_save`");
      full = zero_.is_on("stage3_gather_fp16_weights_on_model_save");
      gather = old;
    }
    emit("checkpoint.kind", std::string(full ? "full" : "sharded"), gather);
    if (zero_.is_on("legacy_stage1")) throw setting_fault(*zero_.find("legacy_stage1"), "is not possible here");
    const Setting* bucket = zero_.find("prefetch_bucket_size");
    if (bucket == nullptr || pydantic_int(*bucket) != 0) return;
    emit("prefetch.forward", int64_t{0}, bucket);
    emit("prefetch.backward", int64_t{0}, bucket);
  }

  /// Whether a block of that name is enabled, and where it says so.
  std::pair<bool, std::optional<Setting>> enabled(std::string_view name, std::span<const Field> fields) {
    const Setting* map = top(name);
    if (map == nullptr) return {};
    const Block block(*map, std::string(name), fields);
    take_remarks(block);
    const Setting* entry = block.find("enabled");
    return {block.is_on("enabled"), entry == nullptr ? std::nullopt : std::optional<Setting>(*entry)};
  }

  void read_precision() {
    const Setting* new_bf16 = top("bf16");
    const bool by_new_name = new_bf16 != nullptr && new_bf16->kind != Kind::kNull;
    if (by_new_name && top("bfloat16") != nullptr) note(*top("bfloat16"), "has no effect beside `bf16`");
    const bool none = new_bf16 != nullptr && !by_new_name && top("bfloat16") == nullptr;
    const auto [bf16, bf16_entry] =
        none ? std::pair<bool, std::optional<Setting>>() : enabled(by_new_name ? "bf16" : "bfloat16", kBf16Fields);
    const auto [fp16, fp16_entry] = enabled("fp16", kFp16Fields);
    if (bf16 && fp16) {
      throw setting_fault(*fp16_entry, "contradicts `" + as_written(*bf16_entry) + "`: only one can be on");
    }
    const std::string dtype = bf16 ? "bfloat16" : fp16 ? "float16" : "";
    const Setting* entry = bf16 ? &*bf16_entry : fp16 ? &*fp16_entry : nullptr;
    std::string reduce = dtype;
    const Setting* reduce_entry = entry;
    if (const Setting* written = top("communication_data_type"); written != nullptr && written->kind != Kind::kNull) {
      constexpr std::array<std::string_view, 3> kNames{"fp32", "fp16", "bf16"};
      const std::string name = lower_case(written->text);
      if (written->kind != Kind::kText || std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
        throw setting_fault(*written, "must be one of " + quoted_list(kNames), nearest_name(name, kNames));
      }
      reduce = dtype_of(name);
      reduce_entry = written;
    }
    if (!dtype.empty()) emit("mixed_precision.param", dtype, entry);
    if (!reduce.empty()) emit("mixed_precision.reduce", reduce, reduce_entry);
  }

  void read_gradients() {
    read_clipping();
    const Setting* sum = top("gradient_allreduce_op");
    if (sum != nullptr) {
      constexpr std::array<std::string_view, 2> kOperations{"mean", "sum"};
      const std::string name = lower_case(sum->text);
      if (sum->kind != Kind::kText || (name != "mean" && name != "sum")) {
        throw setting_fault(*sum, "must be one of " + quoted_list(kOperations), nearest_name(name, kOperations));
      }
      if (name == "sum" && stage_ == 3) throw setting_fault(*sum, "is not possible with stage 3, as in DeepSpeed");
      if (name == "sum") emit("gradient.divide_factor", 1.0, sum);
    }
    const Setting* scale = top("prescale_gradients");
    if (scale != nullptr && is_truthy(*scale)) note(*scale, "changes rounding only: it has no counterpart");
    const Setting* divide = top("gradient_predivide_factor");
    if (divide != nullptr && divide->kind != Kind::kNull && as_number(*divide) != 1.0) {
      note(*divide, "changes rounding only: it has no counterpart");
    }
  }

  void read_clipping() {
    const Setting* entry = top("gradient_clipping");
    if (entry == nullptr) {
      emit("gradient.clip_norm", 1.0);
      return;
    }
    if (is_auto(*entry)) {
      if (host_ == DeepSpeedHost::kAccelerate) {
        emit("gradient.clip_norm", 1.0, entry);
      } else {
        note(*entry, "is filled in by the host later: gradient.clip_norm is not set");
      }
      return;
    }
    const bool is_number = entry->kind == Kind::kInt || entry->kind == Kind::kReal;
    if (!is_number) throw setting_fault(*entry, "must be a number");
    if (*as_number(*entry) > 0) emit("gradient.clip_norm", *as_number(*entry), entry);
  }

  void refuse_above_1(const Setting* entry, const std::string& path) const {
    if (entry == nullptr || entry->kind == Kind::kNull || is_auto(*entry)) return;
    const Setting called = path.empty() ? *entry : at_path(*entry, path);
    const std::optional<int64_t> size = pydantic_int(*entry);
    if (!size) throw setting_fault(called, "must be a whole number");
    if (*size <= 1) return;
    throw setting_fault(called, "is not possible: only data-parallel ranks are sharded, so it must be 1");
  }

  void read_other_parallelism() {
    refuse_above_1(top("sequence_parallel_size"), "");
    if (const Setting* tensor = top("tensor_parallel"); tensor != nullptr) {
      refuse_above_1(find_member(*tensor, "autotp_size"), "tensor_parallel");
      for (const std::string_view inner : {"tensor_parallel", "tp"}) {
        const Setting* block = find_member(*tensor, inner);
        if (block != nullptr) refuse_above_1(find_member(*block, "tp_size"), "tensor_parallel." + std::string(inner));
      }
    }
    const Setting* expert = top("expert_parallel");
    const Setting* used = expert == nullptr ? nullptr : find_member(*expert, "enabled");
    if (used == nullptr || !is_truthy(*used)) return;
    for (const std::string_view size : {"autoep_size", "expert_tensor_parallel_size"}) {
      refuse_above_1(find_member(*expert, size), "expert_parallel");
    }
  }

  void note_set() {
    for (const std::string_view name : {"torch_autocast", "amp"}) {
      const Setting* block = top(name);
      const Setting* on = block == nullptr ? nullptr : find_member(*block, "enabled");
      if (on != nullptr && is_truthy(*on)) note(at_path(*on, std::string(name)), "cannot be expressed here");
    }
    if (const Setting* types = top("data_types"); types != nullptr && is_truthy(*types)) {
      note(*types, "cannot be expressed here");
    }
  }

  const Setting& root_;
  DeepSpeedHost host_;
  const Block zero_{zero_map(find_member(root_, "zero_optimization")), "zero_optimization", kZeroFields};
  int64_t stage_ = 0;
};

}  // namespace

Setting read_deepspeed(std::string_view text, const std::string& file) {
  Setting root = read_json(text, file, JsonExtras::kComments);
  refuse_duplicate_keys(root);
  return root;
}

Translation translate_deepspeed_settings(const Setting& root, const std::string& file,
                                         const TranslationContext& context, DeepSpeedHost host) {
  return DeepSpeedTranslator(root, file, context, host).run();
}

Translation translate_deepspeed(std::string_view text, const std::string& file, const TranslationContext& context) {
  return translate_deepspeed_settings(read_deepspeed(text, file), file, context, DeepSpeedHost::kNone);
}

Translation translate_deepspeed_keys(std::span<const HostKey> keys, const std::string& name,
                                     const TranslationContext& context) {
  const Setting root = settings_of(keys, name);
  refuse_duplicate_keys(root);
  return translate_deepspeed_settings(root, name, context, DeepSpeedHost::kNone);
}

}  // namespace fsdp2
