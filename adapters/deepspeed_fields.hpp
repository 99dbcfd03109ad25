// The fields that DeepSpeed (edaa7221, before 0.19.6) has in the blocks where it refuses all others.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace fsdp2::deepspeed {

enum class FieldType : uint8_t { kBool, kMaybeBool, kInt, kCount, kShare, kAny };
enum class Use : uint8_t {
  kTranslated,  // by the adapter
  kTuning,      // of its engine: no effect here
  kNoted,       // when on
};

struct Field {
  std::string_view name;
  FieldType type;
  Use use = Use::kTuning;
  bool has_stage3_name = false;  // "stage3_" before it is the same field
};

inline constexpr std::array kZeroFields{
    Field{"stage", FieldType::kInt, Use::kTranslated},
    Field{"zero_hpz_partition_size", FieldType::kCount, Use::kTranslated},
    Field{"mics_shard_size", FieldType::kInt, Use::kTranslated},
    Field{"offload_param", FieldType::kAny, Use::kTranslated},
    Field{"offload_optimizer", FieldType::kAny, Use::kTranslated},
    Field{"cpu_offload", FieldType::kMaybeBool, Use::kTranslated},
    Field{"cpu_offload_param", FieldType::kMaybeBool, Use::kTranslated},
    Field{"cpu_offload_use_pin_memory", FieldType::kMaybeBool, Use::kTranslated},
    Field{"gather_16bit_weights_on_model_save", FieldType::kBool, Use::kTranslated, true},
    Field{"stage3_gather_fp16_weights_on_model_save", FieldType::kBool, Use::kTranslated},
    Field{"prefetch_bucket_size", FieldType::kCount, Use::kTranslated, true},
    Field{"legacy_stage1", FieldType::kBool, Use::kTranslated},
    Field{"zero_quantized_weights", FieldType::kBool, Use::kNoted},
    Field{"zero_quantized_gradients", FieldType::kBool, Use::kNoted},
    Field{"zero_quantized_nontrainable_weights", FieldType::kBool, Use::kNoted},
    Field{"zenflow", FieldType::kAny, Use::kNoted},
    Field{"zeropp_loco_param", FieldType::kAny, Use::kNoted},
    Field{"elastic_checkpoint", FieldType::kBool, Use::kNoted},
    Field{"leaf_module", FieldType::kAny, Use::kNoted},
    Field{"contiguous_gradients", FieldType::kBool},
    Field{"reduce_scatter", FieldType::kBool},
    Field{"reduce_bucket_size", FieldType::kCount},
    Field{"use_multi_rank_bucket_allreduce", FieldType::kBool},
    Field{"allgather_partitions", FieldType::kBool},
    Field{"allgather_bucket_size", FieldType::kCount},
    Field{"overlap_comm", FieldType::kMaybeBool},
    Field{"load_from_fp32_weights", FieldType::kBool},
    Field{"sub_group_size", FieldType::kCount},
    Field{"param_persistence_threshold", FieldType::kCount, Use::kTuning, true},
    Field{"model_persistence_threshold", FieldType::kCount, Use::kTuning, true},
    Field{"max_live_parameters", FieldType::kCount, Use::kTuning, true},
    Field{"max_reuse_distance", FieldType::kCount, Use::kTuning, true},
    Field{"module_granularity_threshold", FieldType::kInt, Use::kTuning, true},
    Field{"use_all_reduce_for_fetch_params", FieldType::kBool, Use::kTuning, true},
    Field{"allgather_sequential", FieldType::kBool, Use::kTuning, true},
    Field{"ignore_unused_parameters", FieldType::kBool},
    Field{"round_robin_gradients", FieldType::kBool},
    Field{"mics_hierarchical_params_gather", FieldType::kBool},
    Field{"memory_efficient_linear", FieldType::kBool},
    Field{"pipeline_loading_checkpoint", FieldType::kBool},
    Field{"override_module_apply", FieldType::kBool},
    Field{"log_trace_cache_warnings", FieldType::kBool},
    Field{"enable_sanity_checks", FieldType::kBool},
    Field{"save_muon_momentum_buffer_in_memory", FieldType::kBool},
};
inline constexpr std::array kOffloadParamFields{
    Field{"device", FieldType::kAny, Use::kTranslated},
    Field{"pin_memory", FieldType::kBool, Use::kTranslated},
    Field{"nvme_path", FieldType::kAny},
    Field{"buffer_count", FieldType::kCount},
    Field{"buffer_size", FieldType::kCount},
    Field{"max_in_cpu", FieldType::kCount},
};
inline constexpr std::array kOffloadOptimizerFields{
    Field{"device", FieldType::kAny, Use::kTranslated},
    Field{"pin_memory", FieldType::kBool, Use::kTranslated},
    Field{"ratio", FieldType::kShare, Use::kTranslated},
    Field{"nvme_path", FieldType::kAny},
    Field{"buffer_count", FieldType::kCount},
    Field{"pipeline_read", FieldType::kBool},
    Field{"pipeline_write", FieldType::kBool},
    Field{"fast_init", FieldType::kBool},
    Field{"super_offload", FieldType::kBool, Use::kNoted},
    Field{"cpuadam_cores_perc", FieldType::kShare},
};
inline constexpr std::array kBf16Fields{
    Field{"enabled", FieldType::kBool, Use::kTranslated},
    Field{"immediate_grad_update", FieldType::kBool},
    Field{"check_grad_overflow", FieldType::kBool},
    Field{"bf16_master_weights_and_grads", FieldType::kBool, Use::kNoted},
    Field{"bf16_optimizer_states", FieldType::kBool, Use::kNoted},
};
inline constexpr std::array kFp16Fields{
    Field{"enabled", FieldType::kBool, Use::kTranslated},
    Field{"auto_cast", FieldType::kBool},
    Field{"loss_scale", FieldType::kAny},
    Field{"initial_scale_power", FieldType::kInt},
    Field{"loss_scale_window", FieldType::kInt},
    Field{"hysteresis", FieldType::kInt},
    Field{"consecutive_hysteresis", FieldType::kBool},
    Field{"min_loss_scale", FieldType::kInt},
    Field{"fp16_master_weights_and_grads", FieldType::kBool, Use::kNoted},
};

}  // namespace fsdp2::deepspeed
