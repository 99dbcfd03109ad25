// What an engine counted: collectives, bytes, memory. Read by hosts through `engine_statistics`.
#pragma once
#include <cstdint>

namespace fsdp2 {

/// Same fields and meaning as `fsdp2_statistics` in plugin.h.
struct Statistics {
  int64_t all_gathers = 0;
  int64_t all_gather_bytes = 0;
  int64_t reduce_scatters = 0;
  int64_t reduce_scatter_bytes = 0;
  int64_t all_reduces = 0;
  int64_t all_reduce_bytes = 0;
  int64_t stale_gathers = 0;
  int64_t unsharded_bytes = 0;
  int64_t unsharded_peak_bytes = 0;
  int64_t planned_peak_bytes = 0;
  int64_t shard_bytes = 0;
  int64_t parameter_bytes = 0;
  int64_t padding_bytes = 0;
  int64_t wrap_peak_bytes = 0;
  int64_t units = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
};

}  // namespace fsdp2
