// Shards one by one: where each lies in its parameter, and the whole from its parts.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <string_view>

#include "plugin/engine/communicate.hpp"
#include "plugin/engine/engine.hpp"
#include "registry/error.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {

std::vector<ShardGeometry> Engine::geometry() const {
  std::vector<ShardGeometry> result;
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto& parameters = units_[u]->parameters();  // none after detach()
    for (size_t i = 0; i < parameters.size(); ++i) {
      const PlannedParameter& planned = plan_.units[u].parameters[i];
      const ShardRange range =
          shard_range(plan_.units[u], planned, runtime_->communicator->rank() % runtime_->mesh.shard);
      const bool whole_rows = shard_shape(planned, range).size() == planned.shape.size();
      result.push_back({planned.name, parameters[i].shard, planned.shape, range, whole_rows});
    }
  }
  return result;
}

// Parts differ in size by a row or so: each is padded to the largest.
at::Tensor Engine::gather_tensor(const std::string& name, const at::Tensor& part, int64_t only_rank) {
  require_rest("gather_tensor()");
  const Runtime& r = *runtime_;
  const PlannedUnit* unit = nullptr;
  const PlannedParameter* parameter = nullptr;
  std::vector<std::string_view> names;
  for (const PlannedUnit& candidate : plan_.units) {
    for (const PlannedParameter& p : candidate.parameters) {
      names.push_back(p.name);
      if (p.name != name) continue;
      unit = &candidate;
      parameter = &p;
    }
  }
  if (parameter == nullptr) {
    const std::string nearest = nearest_name(name, names);
    throw Error(ErrorCode::kNotFound, "no parameter `" + name + "`" + did_you_mean(nearest),
                {.parameter = name, .nearest = nearest});
  }
  const int64_t own_rank = r.communicator->rank();
  if (only_rank < -1 || only_rank >= r.communicator->size()) {
    throw Error(ErrorCode::kInvalidArgument, "gather_tensor: the rank is " + std::to_string(only_rank) +
                                                 ", expected -1 (all) to " +
                                                 std::to_string(r.communicator->size() - 1));
  }
  const auto range_of = [&](int64_t rank) { return shard_range(*unit, *parameter, rank % r.mesh.shard); };
  const ShardRange own = range_of(own_rank);
  if (!part.defined() || part.numel() != own.end - own.begin) {
    throw Error(ErrorCode::kInvalidArgument,
                "gather_tensor of `" + name + "`: the part has " +
                    std::to_string(part.defined() ? part.numel() : int64_t{0}) + " elements, the shard of rank " +
                    std::to_string(own_rank) + " has " + std::to_string(own.end - own.begin),
                {.parameter = name, .rank = own_rank});
  }
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const at::Tensor flat = part.detach().reshape({-1});
  const bool wanted = only_rank < 0 || only_rank == own_rank;
  if (!r.gathers) return wanted ? flat.clone().view(parameter->shape) : at::Tensor();
  int64_t largest = 0;
  for (int64_t rank = 0; rank < r.mesh.shard; ++rank)
    largest = std::max(largest, range_of(rank).end - range_of(rank).begin);
  const at::Tensor parts = at::empty({r.mesh.shard, largest}, flat.options());
  const at::Tensor sent = at::zeros({largest}, flat.options());
  sent.narrow(0, 0, flat.numel()).copy_(flat);
  communicate(*r.shard_group, "gather_tensor of `" + name + "`",
              [&] { r.shard_group->all_gather(parts.view(-1), sent)->wait(); });
  if (!wanted) return {};
  at::Tensor full = at::empty({numel(parameter->shape)}, flat.options());
  for (int64_t rank = 0; rank < r.mesh.shard; ++rank) {
    const auto [begin, end] = range_of(rank);
    full.narrow(0, begin, end - begin).copy_(parts[rank].narrow(0, 0, end - begin));
  }
  return full.view(parameter->shape);
}

}  // namespace fsdp2
