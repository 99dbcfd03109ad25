// The entries of the table, by the names they have there; plugin.h documents them. Those of status.hpp are there.
#pragma once
#include <fsdp2/plugin.h>

namespace fsdp2::entries {

// exports.cpp
fsdp2_status* initialize(const fsdp2_host_info* host) noexcept;
fsdp2_status* shutdown(const fsdp2_host_info* host) noexcept;

// config_entries.cpp
size_t strategy_count() noexcept;
const char* strategy_name(size_t index) noexcept;
const char* strategy_help(size_t index) noexcept;
size_t dialect_count() noexcept;
const char* dialect_name(size_t index) noexcept;
const char* dialect_help(size_t index) noexcept;
fsdp2_status* config_load(const fsdp2_config_args* args, fsdp2_config** out) noexcept;
const char* config_toml(const fsdp2_config* config) noexcept;
const char* config_warning(const fsdp2_config* config) noexcept;
size_t config_note_count(const fsdp2_config* config) noexcept;
const char* config_note(const fsdp2_config* config, size_t index) noexcept;
void config_release(fsdp2_config* config) noexcept;

// shard_entries.cpp
fsdp2_status* plan_text(const fsdp2_plan_args* args, char** out) noexcept;
void text_release(char* text) noexcept;
fsdp2_status* shard(const fsdp2_shard_args* args, fsdp2_engine** out) noexcept;
fsdp2_status* shard_tensors(const fsdp2_shard_tensors_args* args, fsdp2_engine** out) noexcept;

// engine_entries.cpp
fsdp2_status* engine_detach(fsdp2_engine* engine) noexcept;
void engine_release(fsdp2_engine* engine) noexcept;
fsdp2_status* engine_visit_parameters(const fsdp2_engine* engine, fsdp2_parameter_visitor visitor, void* user) noexcept;
fsdp2_status* engine_statistics(const fsdp2_engine* engine, fsdp2_statistics* out) noexcept;
fsdp2_status* engine_reset_statistics(fsdp2_engine* engine) noexcept;
const char* engine_plan_text(const fsdp2_engine* engine) noexcept;
fsdp2_status* engine_mark_written(fsdp2_engine* engine) noexcept;
fsdp2_status* engine_gather(fsdp2_engine* engine) noexcept;
fsdp2_status* engine_release_gathered(fsdp2_engine* engine, int32_t write_back) noexcept;
fsdp2_status* engine_export_module(fsdp2_engine* engine, const char* source, const char* target) noexcept;
fsdp2_status* engine_load_weights(fsdp2_engine* engine, const char* source) noexcept;

// unit_entries.cpp
fsdp2_status* engine_unshard(fsdp2_engine* engine, const char* path, int32_t recurse, fsdp2_unshard** out) noexcept;
fsdp2_status* unshard_wait(fsdp2_unshard* unshard) noexcept;
void unshard_release(fsdp2_unshard* unshard) noexcept;
fsdp2_status* engine_reshard(fsdp2_engine* engine, const char* path, int32_t recurse) noexcept;
fsdp2_status* engine_set_reshard_after_forward(fsdp2_engine* engine, const char* path, int32_t recurse,
                                               int32_t reshard) noexcept;
fsdp2_status* engine_set_reshard_after_backward(fsdp2_engine* engine, const char* path, int32_t recurse,
                                                int32_t reshard) noexcept;
fsdp2_status* engine_set_prefetch(fsdp2_engine* engine, const char* path, const char* const* ahead, size_t count,
                                  int32_t backward) noexcept;

// gradient_entries.cpp
fsdp2_status* engine_gradient_norm(fsdp2_engine* engine, double p, double* norm) noexcept;
fsdp2_status* engine_clip_gradient_norm(fsdp2_engine* engine, double max_norm, double p, double* norm) noexcept;
fsdp2_status* engine_clip_gradients(fsdp2_engine* engine, int32_t* configured, double* norm) noexcept;
fsdp2_status* engine_clip_gradient_value(fsdp2_engine* engine, double limit) noexcept;
fsdp2_status* engine_zero_gradients(fsdp2_engine* engine) noexcept;
fsdp2_status* engine_set_gradient_sync(fsdp2_engine* engine, const char* path, int32_t recurse, int32_t on) noexcept;
fsdp2_status* engine_set_all_reduce(fsdp2_engine* engine, const char* path, int32_t recurse, int32_t on) noexcept;
fsdp2_status* engine_set_gradient_divisor(fsdp2_engine* engine, const char* path, int32_t recurse,
                                          double divisor) noexcept;
fsdp2_status* engine_set_last_backward(fsdp2_engine* engine, int32_t on) noexcept;
fsdp2_status* engine_unscale_gradients(fsdp2_engine* engine, double scale, int32_t* found_inf) noexcept;
fsdp2_status* engine_check_step(fsdp2_engine* engine) noexcept;
fsdp2_status* engine_visit_geometry(const fsdp2_engine* engine, fsdp2_geometry_visitor visitor, void* user) noexcept;
fsdp2_status* engine_gather_tensor(fsdp2_engine* engine, const char* name, const void* shard, int64_t rank,
                                   void* out) noexcept;

// call_entries.cpp
fsdp2_status* engine_enter(fsdp2_engine* engine, const char* path, void* const* tensors, size_t count,
                           fsdp2_call** out) noexcept;
fsdp2_status* call_exit(fsdp2_call* call, void* const* tensors, size_t count) noexcept;
void call_release(fsdp2_call* call) noexcept;

}  // namespace fsdp2::entries
