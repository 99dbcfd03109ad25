// The second export: the table. The first one is the manifest (manifest.cpp).
#include <fsdp2/plugin.h>

#include "plugin/abi/arguments.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/handshake.hpp"
#include "plugin/abi/status.hpp"

namespace fsdp2 {
namespace entries {

fsdp2_status* initialize(const fsdp2_host_info* host) noexcept {
  return guard([&] { fsdp2::initialize(read_struct(host, "fsdp2_host_info")); });
}

fsdp2_status* shutdown(const fsdp2_host_info* host) noexcept {
  return guard([&] { fsdp2::shutdown(read_struct(host, "fsdp2_host_info")); });
}

}  // namespace entries

namespace {

constexpr fsdp2_api kApi = {
    .struct_size = sizeof(fsdp2_api),
    .status_code = &status_code,
    .status_message = &status_message,
    .status_detail = &status_detail,
    .status_release = &status_release,
    .initialize = &entries::initialize,
    .shutdown = &entries::shutdown,
    .strategy_count = &entries::strategy_count,
    .strategy_name = &entries::strategy_name,
    .strategy_help = &entries::strategy_help,
    .dialect_count = &entries::dialect_count,
    .dialect_name = &entries::dialect_name,
    .dialect_help = &entries::dialect_help,
    .config_load = &entries::config_load,
    .config_toml = &entries::config_toml,
    .config_warning = &entries::config_warning,
    .config_note_count = &entries::config_note_count,
    .config_note = &entries::config_note,
    .config_release = &entries::config_release,
    .plan_text = &entries::plan_text,
    .text_release = &entries::text_release,
    .shard = &entries::shard,
    .engine_detach = &entries::engine_detach,
    .engine_release = &entries::engine_release,
    .engine_visit_parameters = &entries::engine_visit_parameters,
    .engine_statistics = &entries::engine_statistics,
    .engine_reset_statistics = &entries::engine_reset_statistics,
    .engine_plan_text = &entries::engine_plan_text,
    .engine_mark_written = &entries::engine_mark_written,
    .engine_gather = &entries::engine_gather,
    .engine_release_gathered = &entries::engine_release_gathered,
    .engine_gradient_norm = &entries::engine_gradient_norm,
    .engine_clip_gradient_norm = &entries::engine_clip_gradient_norm,
    .engine_clip_gradient_value = &entries::engine_clip_gradient_value,
    .engine_zero_gradients = &entries::engine_zero_gradients,
    .engine_unscale_gradients = &entries::engine_unscale_gradients,
    .engine_check_step = &entries::engine_check_step,
    .engine_visit_geometry = &entries::engine_visit_geometry,
    .engine_gather_tensor = &entries::engine_gather_tensor,
    .engine_export_module = &entries::engine_export_module,
    .engine_load_weights = &entries::engine_load_weights,
    .shard_tensors = &entries::shard_tensors,
    .engine_enter = &entries::engine_enter,
    .call_exit = &entries::call_exit,
    .call_release = &entries::call_release,
    .engine_set_gradient_sync = &entries::engine_set_gradient_sync,
    .engine_set_all_reduce = &entries::engine_set_all_reduce,
    .engine_set_gradient_divisor = &entries::engine_set_gradient_divisor,
    .engine_set_last_backward = &entries::engine_set_last_backward,
    .engine_unshard = &entries::engine_unshard,
    .unshard_wait = &entries::unshard_wait,
    .unshard_release = &entries::unshard_release,
    .engine_reshard = &entries::engine_reshard,
    .engine_set_reshard_after_forward = &entries::engine_set_reshard_after_forward,
    .engine_set_reshard_after_backward = &entries::engine_set_reshard_after_backward,
    .engine_set_prefetch = &entries::engine_set_prefetch,
    .engine_clip_gradients = &entries::engine_clip_gradients,
};

}  // namespace
}  // namespace fsdp2

extern "C" __attribute__((visibility("default"))) const fsdp2_api* fsdp2_plugin_get_api(uint32_t abi_major) {
  return abi_major == FSDP2_ABI_MAJOR ? &fsdp2::kApi : nullptr;
}
