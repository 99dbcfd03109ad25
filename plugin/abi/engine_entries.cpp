// Entries that ask something of an engine.
#include "plugin/abi/arguments.hpp"
#include "plugin/abi/engine_handle.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/status.hpp"
#include "plugin/sharded_module.hpp"

namespace fsdp2::entries {
namespace {

fsdp2_statistics to_c(const Statistics& s) {
  fsdp2_statistics c{};
  c.struct_size = sizeof(c);
  c.all_gathers = s.all_gathers;
  c.all_gather_bytes = s.all_gather_bytes;
  c.reduce_scatters = s.reduce_scatters;
  c.reduce_scatter_bytes = s.reduce_scatter_bytes;
  c.all_reduces = s.all_reduces;
  c.all_reduce_bytes = s.all_reduce_bytes;
  c.stale_gathers = s.stale_gathers;
  c.unsharded_bytes = s.unsharded_bytes;
  c.unsharded_peak_bytes = s.unsharded_peak_bytes;
  c.planned_peak_bytes = s.planned_peak_bytes;
  c.shard_bytes = s.shard_bytes;
  c.parameter_bytes = s.parameter_bytes;
  c.padding_bytes = s.padding_bytes;
  c.wrap_peak_bytes = s.wrap_peak_bytes;
  c.units = s.units;
  c.rank = s.rank;
  c.world_size = s.world_size;
  return c;
}

std::shared_ptr<ShardedModule> scripted(const fsdp2_engine* engine, const char* call) {
  if (auto module = std::dynamic_pointer_cast<ShardedModule>(engine_of(engine))) return module;
  throw Error(ErrorCode::kFailedPrecondition,
              std::string(call) + " is for scripted modules; copy tensors of a host between engine_gather() and " +
                  "engine_release_gathered()");
}

}  // namespace

fsdp2_status* engine_detach(fsdp2_engine* engine) noexcept {
  return guard([&] { engine_of(engine)->detach(); });
}

void engine_release(fsdp2_engine* engine) noexcept {
  EngineHandles::live().remove(engine);
}

fsdp2_status* engine_visit_parameters(const fsdp2_engine* engine, fsdp2_parameter_visitor visitor,
                                      void* user) noexcept {
  return guard([&] {
    if (visitor == nullptr) throw Error(ErrorCode::kInvalidArgument, "visitor is null");
    const auto visited = engine_of(engine);
    for (const NamedTensor& parameter : visited->parameters()) {
      visitor(user, parameter.name.data(), parameter.name.size(), &parameter.tensor);
    }
  });
}

fsdp2_status* engine_statistics(const fsdp2_engine* engine, fsdp2_statistics* out) noexcept {
  return guard([&] { write_struct(out, to_c(engine_of(engine)->statistics()), "fsdp2_statistics"); });
}

fsdp2_status* engine_reset_statistics(fsdp2_engine* engine) noexcept {
  return guard([&] { engine_of(engine)->reset_statistics(); });
}

const char* engine_plan_text(const fsdp2_engine* engine) noexcept {
  const auto held = EngineHandles::live().find(engine);
  return held ? held->plan_text.c_str() : "";
}

fsdp2_status* engine_mark_written(fsdp2_engine* engine) noexcept {
  return guard([&] { engine_of(engine)->mark_written(); });
}

fsdp2_status* engine_gather(fsdp2_engine* engine) noexcept {
  return guard([&] { engine_of(engine)->begin_local_use(); });
}

fsdp2_status* engine_release_gathered(fsdp2_engine* engine, int32_t write_back) noexcept {
  return guard([&] { engine_of(engine)->end_local_use(write_back != 0); });
}

fsdp2_status* engine_export_module(fsdp2_engine* engine, const char* source, const char* target) noexcept {
  return guard([&] {
    const char* from = &require_argument(source, "source");
    const char* to = &require_argument(target, "target");
    scripted(engine, "engine_export_module()")->export_to(from, to);
  });
}

fsdp2_status* engine_load_weights(fsdp2_engine* engine, const char* source) noexcept {
  return guard([&] {
    const char* from = &require_argument(source, "source");
    scripted(engine, "engine_load_weights()")->load_from(from);
  });
}

}  // namespace fsdp2::entries
