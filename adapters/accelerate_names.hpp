// The keys and values that Accelerate 1.15.0 knows.
#pragma once
#include <array>
#include <string_view>

namespace fsdp2::accelerate {

inline constexpr std::array<std::string_view, 5> kStrategies{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                             "HYBRID_SHARD_ZERO2"};
inline constexpr std::array<std::string_view, 3> kPolicies{"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
inline constexpr std::array<std::string_view, 3> kStateDicts{"FULL_STATE_DICT", "LOCAL_STATE_DICT",
                                                             "SHARDED_STATE_DICT"};
inline constexpr std::array<std::string_view, 3> kPrefetches{"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
inline constexpr std::array<std::string_view, 4> kPrecisions{"no", "fp16", "bf16", "fp8"};
inline constexpr std::array<std::string_view, 6> kObsolete{"fsdp_backward_prefetch",  "fsdp_forward_prefetch",
                                                           "fsdp_sync_module_states", "fsdp_use_orig_params",
                                                           "fsdp_sharding_strategy",  "fsdp_limit_all_gathers"};
inline constexpr std::array<std::string_view, 17> kFsdpKeys{"fsdp_version",
                                                            "fsdp_sharding_strategy",
                                                            "fsdp_reshard_after_forward",
                                                            "fsdp_auto_wrap_policy",
                                                            "fsdp_transformer_layer_cls_to_wrap",
                                                            "fsdp_min_num_params",
                                                            "fsdp_offload_params",
                                                            "fsdp_state_dict_type",
                                                            "fsdp_cpu_ram_efficient_loading",
                                                            "fsdp_sync_module_states",
                                                            "fsdp_backward_prefetch",
                                                            "fsdp_forward_prefetch",
                                                            "fsdp_use_orig_params",
                                                            "fsdp_activation_checkpointing",
                                                            "fsdp_activation_checkpointing_offload",
                                                            "fsdp_ignored_modules",
                                                            "fsdp_limit_all_gathers"};
// The fields of Accelerate's ClusterConfig and the two older keys it converts; it refuses any other.
inline constexpr std::array<std::string_view, 33> kTopKeys{"compute_environment",
                                                           "distributed_type",
                                                           "mixed_precision",
                                                           "use_cpu",
                                                           "debug",
                                                           "num_processes",
                                                           "machine_rank",
                                                           "num_machines",
                                                           "gpu_ids",
                                                           "main_process_ip",
                                                           "main_process_port",
                                                           "rdzv_backend",
                                                           "same_network",
                                                           "main_training_function",
                                                           "enable_cpu_affinity",
                                                           "fp8_config",
                                                           "deepspeed_config",
                                                           "fsdp_config",
                                                           "parallelism_config",
                                                           "megatron_lm_config",
                                                           "mpirun_config",
                                                           "downcast_bf16",
                                                           "tpu_name",
                                                           "tpu_zone",
                                                           "tpu_use_cluster",
                                                           "tpu_use_sudo",
                                                           "command_file",
                                                           "commands",
                                                           "tpu_vm",
                                                           "tpu_env",
                                                           "dynamo_config",
                                                           "fp16",
                                                           "dynamo_backend"};

}  // namespace fsdp2::accelerate
