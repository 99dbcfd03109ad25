#include "samples/host_trainer/rank_environment.hpp"

#include <fsdp2/launch_environment.hpp>

namespace trainer {

std::optional<RankEnvironment> launched_rank() {
  const auto launched = fsdp2::launch_environment();
  if (!launched) return std::nullopt;
  RankEnvironment e;
  e.rank = launched->rank;
  e.world = launched->world_size;
  e.local_rank = launched->local_rank;
  e.local_world = launched->local_world_size.value_or(1);
  e.master_address = launched->master_address;
  e.master_port = static_cast<uint16_t>(launched->master_port);
  e.store_is_kept = launched->agent_keeps_store;
  e.restart = std::to_string(launched->restart);
  return e;
}

}  // namespace trainer
