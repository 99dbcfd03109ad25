// Entries for gradients and single shards, between backward and the optimizer's step.
#include <optional>
#include <string>

#include "plugin/abi/arguments.hpp"
#include "plugin/abi/engine_handle.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/status.hpp"

namespace fsdp2::entries {

fsdp2_status* engine_gradient_norm(fsdp2_engine* engine, double p, double* norm) noexcept {
  return guard([&] {
    double& out = require_argument(norm, "norm");
    out = engine_of(engine)->gradient_norm(p);
  });
}

fsdp2_status* engine_clip_gradient_norm(fsdp2_engine* engine, double max_norm, double p, double* norm) noexcept {
  return guard([&] {
    const double before = engine_of(engine)->clip_gradient_norm(max_norm, p);
    if (norm != nullptr) *norm = before;
  });
}

fsdp2_status* engine_clip_gradients(fsdp2_engine* engine, int32_t* configured, double* norm) noexcept {
  return guard([&] {
    const std::optional<double> before = engine_of(engine)->clip_gradients();
    if (configured != nullptr) *configured = before ? 1 : 0;
    if (norm != nullptr) *norm = before.value_or(0);
  });
}

fsdp2_status* engine_clip_gradient_value(fsdp2_engine* engine, double limit) noexcept {
  return guard([&] { engine_of(engine)->clip_gradient_value(limit); });
}

fsdp2_status* engine_zero_gradients(fsdp2_engine* engine) noexcept {
  return guard([&] { engine_of(engine)->zero_gradients(); });
}

fsdp2_status* engine_set_gradient_sync(fsdp2_engine* engine, const char* path, int32_t recurse, int32_t on) noexcept {
  return guard([&] { engine_of(engine)->set_gradient_sync(&require_argument(path, "path"), recurse != 0, on != 0); });
}

fsdp2_status* engine_set_all_reduce(fsdp2_engine* engine, const char* path, int32_t recurse, int32_t on) noexcept {
  return guard([&] { engine_of(engine)->set_all_reduce(&require_argument(path, "path"), recurse != 0, on != 0); });
}

fsdp2_status* engine_set_gradient_divisor(fsdp2_engine* engine, const char* path, int32_t recurse,
                                          double divisor) noexcept {
  return guard(
      [&] { engine_of(engine)->set_gradient_divisor(&require_argument(path, "path"), recurse != 0, divisor); });
}

fsdp2_status* engine_set_last_backward(fsdp2_engine* engine, int32_t on) noexcept {
  return guard([&] { engine_of(engine)->set_last_backward(on != 0); });
}

fsdp2_status* engine_unscale_gradients(fsdp2_engine* engine, double scale, int32_t* found_inf) noexcept {
  return guard([&] {
    int32_t& out = require_argument(found_inf, "found_inf");
    out = engine_of(engine)->unscale_gradients(scale) ? 1 : 0;
  });
}

fsdp2_status* engine_check_step(fsdp2_engine* engine) noexcept {
  return guard([&] { engine_of(engine)->check_step(); });
}

fsdp2_status* engine_visit_geometry(const fsdp2_engine* engine, fsdp2_geometry_visitor visitor, void* user) noexcept {
  return guard([&] {
    if (visitor == nullptr) throw Error(ErrorCode::kInvalidArgument, "visitor is null");
    const auto visited = engine_of(engine);
    for (const ShardGeometry& part : visited->geometry()) {
      fsdp2_shard_geometry c{};
      c.struct_size = sizeof(c);
      c.name = part.name.c_str();
      c.tensor = &part.shard;
      c.shape = part.shape.data();
      c.dims = part.shape.size();
      c.begin = part.range.begin;
      c.end = part.range.end;
      c.whole_rows = part.whole_rows ? 1 : 0;
      c.trainable = part.shard.requires_grad() ? 1 : 0;
      visitor(user, &c);
    }
  });
}

fsdp2_status* engine_gather_tensor(fsdp2_engine* engine, const char* name, const void* shard, int64_t rank,
                                   void* out) noexcept {
  return guard([&] {
    const char* parameter = &require_argument(name, "name");
    const auto& part = require_argument(static_cast<const at::Tensor*>(shard), "shard");
    auto& full = require_argument(static_cast<at::Tensor*>(out), "out");
    full = engine_of(engine)->gather_tensor(parameter, part, rank);
  });
}

}  // namespace fsdp2::entries
