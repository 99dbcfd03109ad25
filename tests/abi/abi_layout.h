/* Offsets and sizes of every struct that crosses the ABI, on 64-bit machines. A line may be added, none may change.
 * Included by a C11 and by C++ sources. */
#include <assert.h>
#include <fsdp2/plugin.h>

#define FSDP2_AT(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define FSDP2_SIZE(type, size) static_assert(sizeof(type) == (size), #type " has another size")

FSDP2_SIZE(fsdp2_code, 4);
FSDP2_SIZE(fsdp2_log_level, 4);
FSDP2_SIZE(fsdp2_communicator_kind, 4);

FSDP2_AT(fsdp2_manifest, struct_size, 0);
FSDP2_AT(fsdp2_manifest, abi_major, 4);
FSDP2_AT(fsdp2_manifest, abi_minor, 8);
FSDP2_AT(fsdp2_manifest, magic, 16);
FSDP2_AT(fsdp2_manifest, torch_abi_version, 24);
FSDP2_AT(fsdp2_manifest, cxx11_abi, 32);
FSDP2_AT(fsdp2_manifest, sizeof_tensor_impl, 36);
FSDP2_AT(fsdp2_manifest, sizeof_ivalue, 40);
FSDP2_AT(fsdp2_manifest, sizeof_jit_module, 44);
FSDP2_AT(fsdp2_manifest, sizeof_jit_operator, 48);
FSDP2_AT(fsdp2_manifest, cuda_version, 52);
FSDP2_AT(fsdp2_manifest, nccl_version, 56);
FSDP2_AT(fsdp2_manifest, torch_version, 64);
FSDP2_AT(fsdp2_manifest, plugin_version, 96);
FSDP2_SIZE(fsdp2_manifest, 128);

FSDP2_AT(fsdp2_host_info, struct_size, 0);
FSDP2_AT(fsdp2_host_info, abi_major, 8);
FSDP2_AT(fsdp2_host_info, abi_minor, 12);
FSDP2_AT(fsdp2_host_info, torch_abi_version, 16);
FSDP2_AT(fsdp2_host_info, torch_abi_entry, 24);
FSDP2_AT(fsdp2_host_info, log, 32);
FSDP2_AT(fsdp2_host_info, log_user, 40);
FSDP2_SIZE(fsdp2_host_info, 48);

FSDP2_AT(fsdp2_config_args, struct_size, 0);
FSDP2_AT(fsdp2_config_args, path, 8);
FSDP2_AT(fsdp2_config_args, text, 16);
FSDP2_AT(fsdp2_config_args, overrides, 24);
FSDP2_AT(fsdp2_config_args, override_count, 32);
FSDP2_SIZE(fsdp2_config_args, 40);

FSDP2_AT(fsdp2_shard_args, struct_size, 0);
FSDP2_AT(fsdp2_shard_args, config, 8);
FSDP2_AT(fsdp2_shard_args, module, 16);
FSDP2_AT(fsdp2_shard_args, communicator_kind, 24);
FSDP2_AT(fsdp2_shard_args, communicator, 32);
FSDP2_AT(fsdp2_shard_args, backend, 40);
FSDP2_SIZE(fsdp2_shard_args, 48);

FSDP2_AT(fsdp2_plan_args, struct_size, 0);
FSDP2_AT(fsdp2_plan_args, config, 8);
FSDP2_AT(fsdp2_plan_args, module, 16);
FSDP2_AT(fsdp2_plan_args, world_size, 24);
FSDP2_SIZE(fsdp2_plan_args, 32);

FSDP2_AT(fsdp2_statistics, struct_size, 0);
FSDP2_AT(fsdp2_statistics, all_gathers, 8);
FSDP2_AT(fsdp2_statistics, all_gather_bytes, 16);
FSDP2_AT(fsdp2_statistics, reduce_scatters, 24);
FSDP2_AT(fsdp2_statistics, reduce_scatter_bytes, 32);
FSDP2_AT(fsdp2_statistics, all_reduces, 40);
FSDP2_AT(fsdp2_statistics, all_reduce_bytes, 48);
FSDP2_AT(fsdp2_statistics, stale_gathers, 56);
FSDP2_AT(fsdp2_statistics, unsharded_bytes, 64);
FSDP2_AT(fsdp2_statistics, unsharded_peak_bytes, 72);
FSDP2_AT(fsdp2_statistics, planned_peak_bytes, 80);
FSDP2_AT(fsdp2_statistics, shard_bytes, 88);
FSDP2_AT(fsdp2_statistics, parameter_bytes, 96);
FSDP2_AT(fsdp2_statistics, padding_bytes, 104);
FSDP2_AT(fsdp2_statistics, wrap_peak_bytes, 112);
FSDP2_AT(fsdp2_statistics, units, 120);
FSDP2_AT(fsdp2_statistics, rank, 128);
FSDP2_AT(fsdp2_statistics, world_size, 136);
FSDP2_SIZE(fsdp2_statistics, 144);

FSDP2_AT(fsdp2_api, struct_size, 0);
FSDP2_AT(fsdp2_api, status_code, 8);
FSDP2_AT(fsdp2_api, status_message, 16);
FSDP2_AT(fsdp2_api, status_detail, 24);
FSDP2_AT(fsdp2_api, status_release, 32);
FSDP2_AT(fsdp2_api, initialize, 40);
FSDP2_AT(fsdp2_api, shutdown, 48);
FSDP2_AT(fsdp2_api, strategy_count, 56);
FSDP2_AT(fsdp2_api, strategy_name, 64);
FSDP2_AT(fsdp2_api, strategy_help, 72);
FSDP2_AT(fsdp2_api, dialect_count, 80);
FSDP2_AT(fsdp2_api, dialect_name, 88);
FSDP2_AT(fsdp2_api, dialect_help, 96);
FSDP2_AT(fsdp2_api, config_load, 104);
FSDP2_AT(fsdp2_api, config_toml, 112);
FSDP2_AT(fsdp2_api, config_warning, 120);
FSDP2_AT(fsdp2_api, config_note_count, 128);
FSDP2_AT(fsdp2_api, config_note, 136);
FSDP2_AT(fsdp2_api, config_release, 144);
FSDP2_AT(fsdp2_api, plan_text, 152);
FSDP2_AT(fsdp2_api, text_release, 160);
FSDP2_AT(fsdp2_api, shard, 168);
FSDP2_AT(fsdp2_api, engine_detach, 176);
FSDP2_AT(fsdp2_api, engine_release, 184);
FSDP2_AT(fsdp2_api, engine_visit_parameters, 192);
FSDP2_AT(fsdp2_api, engine_statistics, 200);
FSDP2_AT(fsdp2_api, engine_reset_statistics, 208);
FSDP2_AT(fsdp2_api, engine_plan_text, 216);
FSDP2_AT(fsdp2_api, engine_mark_written, 224);
FSDP2_AT(fsdp2_api, engine_gather, 232);
FSDP2_AT(fsdp2_api, engine_release_gathered, 240);
FSDP2_SIZE(fsdp2_api, 248);
