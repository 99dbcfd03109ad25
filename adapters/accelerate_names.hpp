// The keys and values that Accelerate 1.15.0 knows.
#pragma once
#include <array>
#include <string_view>

namespace fsdp2::accelerate {

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
// Keywords of its FullyShardedDataParallelPlugin, and the launch file's keys for them. Those without one have no effect
// here. Its variables are called as those keys in capitals, but for one.
struct PluginKeyword {
  std::string_view keyword;
  std::string_view key;
};
inline constexpr std::string_view kPolicyKeyword = "mixed_precision_policy";
inline constexpr std::array<PluginKeyword, 22> kPluginKeywords{{
    {"fsdp_version", "fsdp_version"},
    {"sharding_strategy", "fsdp_sharding_strategy"},
    {"reshard_after_forward", "fsdp_reshard_after_forward"},
    {"auto_wrap_policy", "fsdp_auto_wrap_policy"},
    {"transformer_cls_names_to_wrap", "fsdp_transformer_layer_cls_to_wrap"},
    {"min_num_params", "fsdp_min_num_params"},
    {"cpu_offload", "fsdp_offload_params"},
    {"state_dict_type", "fsdp_state_dict_type"},
    {"cpu_ram_efficient_loading", "fsdp_cpu_ram_efficient_loading"},
    {"sync_module_states", "fsdp_sync_module_states"},
    {"backward_prefetch", "fsdp_backward_prefetch"},
    {"forward_prefetch", "fsdp_forward_prefetch"},
    {"use_orig_params", "fsdp_use_orig_params"},
    {"activation_checkpointing", "fsdp_activation_checkpointing"},
    {"activation_checkpointing_offload", "fsdp_activation_checkpointing_offload"},
    {"ignored_modules", "fsdp_ignored_modules"},
    {"limit_all_gathers", "fsdp_limit_all_gathers"},
    {kPolicyKeyword, kPolicyKeyword},
    {"parallelism_config", "parallelism_config"},
    {"state_dict_config", ""},
    {"optim_state_dict_config", ""},
    {"param_init_fn", ""},
}};
inline constexpr std::string_view kClassesVariable = "FSDP_TRANSFORMER_CLS_TO_WRAP";

// Keys of `deepspeed_config` that the launcher reads.
inline constexpr std::array<std::string_view, 15> kDeepSpeedKeys{"zero_stage",
                                                                 "offload_optimizer_device",
                                                                 "offload_param_device",
                                                                 "offload_optimizer_nvme_path",
                                                                 "offload_param_nvme_path",
                                                                 "gradient_accumulation_steps",
                                                                 "gradient_clipping",
                                                                 "zero3_init_flag",
                                                                 "zero3_save_16bit_model",
                                                                 "deepspeed_config_file",
                                                                 "deepspeed_hostfile",
                                                                 "deepspeed_exclusion_filter",
                                                                 "deepspeed_inclusion_filter",
                                                                 "deepspeed_multinode_launcher",
                                                                 "deepspeed_moe_layer_cls_names"};
// Those that it refuses beside `deepspeed_config_file`.
inline constexpr std::array<std::string_view, 8> kBesideNoFile{
    "gradient_accumulation_steps", "gradient_clipping",     "zero_stage",
    "offload_optimizer_device",    "offload_param_device",  "offload_param_nvme_path",
    "offload_optimizer_nvme_path", "zero3_save_16bit_model"};

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
