#include "registry/reshard.hpp"

#include "registry/error.hpp"

namespace fsdp2 {

std::string fault_of_block(int64_t ranks, const Mesh& mesh) {
  if (mesh.shard == 1 || (ranks >= 1 && mesh.shard % ranks == 0)) return "";
  std::string fits = "1";
  for (int64_t divisor = 2; divisor <= mesh.shard; ++divisor) {
    if (mesh.shard % divisor == 0) fits += (divisor == mesh.shard ? " or " : ", ") + std::to_string(divisor);
  }
  return "reshard_after_forward = " + std::to_string(ranks) + ", which does not divide the " +
         std::to_string(mesh.shard) + " ranks that shard a parameter; " + fits + " would";
}

void reshard_to(PlannedUnit& unit, int64_t ranks, const Mesh& mesh) {
  if (const std::string fault = fault_of_block(ranks, mesh); !fault.empty()) {
    throw Error(ErrorCode::kConfig, fault, {.key = "reshard_after_forward"});
  }
  if (mesh.shard == 1) return;
  unit.reshard_after_forward = ranks > 1;
  unit.reshard_to = ranks > 1 && ranks < mesh.shard ? ranks : 0;
}

}  // namespace fsdp2
