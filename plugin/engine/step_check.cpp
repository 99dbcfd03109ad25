#include "plugin/engine/step_check.hpp"

#include <string>
#include <utility>

#include "plugin/engine/content_hash.hpp"
#include "plugin/engine/rank_values.hpp"
#include "plugin/engine/unit.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

bool is_zero(const at::Tensor& tensor) {
  return !tensor.any().item<bool>();
}

}  // namespace

void StepCheck::record(std::span<const std::weak_ptr<Unit>> units) {
  records_.clear();
  if (left_ <= 0) return;
  for (const auto& weak : units) {
    const auto unit = weak.lock();
    if (unit == nullptr) continue;
    for (const UnitParameter& p : unit->parameters()) {
      if (!p.shard.requires_grad()) continue;
      const at::Tensor gradient = p.shard.grad();
      records_.push_back(
          {p.name, gradient, p.shard, gradient.defined() ? content_hash(gradient) : 0, content_hash(p.shard)});
    }
  }
}

void StepCheck::verify(Communicator& communicator, bool with_shards) {
  constexpr int64_t kNone = -1;
  if (records_.empty()) return;
  int64_t changed = kNone;
  bool is_gradient = true;
  bool stepped = false;
  for (size_t i = 0; i < records_.size() && changed == kNone; ++i) {
    const Record& record = records_[i];
    // A host may set gradients to zero at any time.
    const bool gradient =
        record.gradient.defined() && content_hash(record.gradient) != record.gradient_hash && !is_zero(record.gradient);
    const bool shard = content_hash(record.shard) != record.shard_hash;
    stepped = stepped || shard;
    if (!gradient && !(with_shards && shard)) continue;
    changed = static_cast<int64_t>(i);
    is_gradient = gradient;
  }
  const auto found =
      all_gather_values<int64_t>(communicator, "the check of gradients",
                                 {changed, is_gradient ? 1 : 0, stepped ? 1 : 0}, records_.front().shard.device());
  constexpr size_t kValues = 3;
  bool anyone_stepped = false;
  for (size_t rank = 0; rank < found.size() / kValues; ++rank) {
    const int64_t* of_rank = &found[kValues * rank];
    anyone_stepped = anyone_stepped || of_rank[2] != 0;
    if (of_rank[0] == kNone) continue;
    const std::string name = records_.at(static_cast<size_t>(of_rank[0])).name;
    records_.clear();
    throw Error(ErrorCode::kFailedPrecondition,
                std::string(of_rank[1] != 0 ? "the gradient" : "the shard") + " of `" + name + "` on rank " +
                    std::to_string(rank) +
                    " was changed after backward by something other than the engine. Gradients " +
                    "are averaged over the ranks already: a host must not average them again (all-reduce). Clip and " +
                    "unscale with the engine's own calls; a host that changes gradients on purpose sets " +
                    "`debug.check_steps` to 0",
                {.key = "debug.check_steps", .parameter = name, .rank = static_cast<int64_t>(rank)});
  }
  if (!anyone_stepped) return;  // between micro-batches: the host may still do what it does before a step
  --left_;
  records_.clear();
}

}  // namespace fsdp2
