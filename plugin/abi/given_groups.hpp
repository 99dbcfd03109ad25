// The groups of a mesh that a host hands in, beside the communicator of all ranks.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/engine/communicator.hpp"
#include "registry/error.hpp"

namespace fsdp2 {

/// Is `world`, but its split gives what was handed in: `shard` for neighbouring ranks, else `replicate`; after that,
/// neighbours are blocks of a row and split from `shard`.
class GivenGroups final : public Communicator {
 public:
  GivenGroups(std::shared_ptr<Communicator> world, std::shared_ptr<Communicator> shard,
              std::shared_ptr<Communicator> replicate)
      : world_(std::move(world)),
        shard_(std::move(shard)),
        replicate_(std::move(replicate)),
        gave_shard_(shard_ && shard_->size() == world_->size()) {}  // then nobody asks for the row

  [[nodiscard]] int64_t rank() const override { return world_->rank(); }
  [[nodiscard]] int64_t size() const override { return world_->size(); }
  [[nodiscard]] std::string name() const override { return world_->name(); }
  void announce(std::string_view purpose) override { world_->announce(purpose); }
  [[nodiscard]] std::string whereabouts(const std::string& own) noexcept override { return world_->whereabouts(own); }
  std::unique_ptr<Request> all_gather(at::Tensor output, at::Tensor input) override {
    return world_->all_gather(output, input);
  }
  std::unique_ptr<Request> reduce_scatter(at::Tensor output, at::Tensor input, double divisor) override {
    return world_->reduce_scatter(output, input, divisor);
  }
  std::unique_ptr<Request> all_reduce(at::Tensor tensor, double divisor) override {
    return world_->all_reduce(tensor, divisor);
  }

  std::unique_ptr<Request> broadcast(at::Tensor tensor) override { return world_->broadcast(tensor); }

  std::shared_ptr<Communicator> split(const std::vector<int64_t>& members) override {
    const bool neighbours = members.size() > 1 && members[1] == members[0] + 1;
    const auto& group = neighbours ? shard_ : replicate_;
    if (neighbours && gave_shard_) return block_of(members);
    const auto place = std::find(members.begin(), members.end(), rank()) - members.begin();
    if (group->size() == static_cast<int64_t>(members.size()) && group->rank() == place) {
      gave_shard_ = gave_shard_ || neighbours;
      return group;
    }
    throw Error(ErrorCode::kInvalidArgument,
                std::string(neighbours ? "shard" : "replicate") + "_communicator: this is rank " +
                    std::to_string(group->rank()) + " of " + std::to_string(group->size()) +
                    " there, and the mesh wants " + "rank " + std::to_string(place) + " of " +
                    std::to_string(members.size()),
                {.rank = rank()});
  }

 private:
  [[nodiscard]] std::shared_ptr<Communicator> block_of(std::vector<int64_t> members) const {
    const int64_t first = rank() - shard_->rank();
    for (int64_t& member : members) member -= first;
    return shard_->split(members);
  }

  std::shared_ptr<Communicator> world_;
  std::shared_ptr<Communicator> shard_;
  std::shared_ptr<Communicator> replicate_;
  bool gave_shard_;
};

}  // namespace fsdp2
