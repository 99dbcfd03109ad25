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

void StepCheck::verify(Communicator& communicator, bool with_shards, bool last) {
  constexpr int64_t kNone = -1;
  if (records_.empty()) return;
  const std::vector<Record> records = last ? std::exchange(records_, {}) : records_;
  if (last) --left_;
  int64_t changed = kNone;
  bool is_gradient = true;
  for (size_t i = 0; i < records.size() && changed == kNone; ++i) {
    const Record& record = records[i];
    // A host may set gradients to zero at any time.
    const bool gradient =
        record.gradient.defined() && content_hash(record.gradient) != record.gradient_hash && !is_zero(record.gradient);
    if (!gradient && !(with_shards && content_hash(record.shard) != record.shard_hash)) continue;
    changed = static_cast<int64_t>(i);
    is_gradient = gradient;
  }
  communicator.announce("check of gradients");
  const c10::Device device = records.front().shard.device();
  const auto found = all_gather_values<int64_t>(communicator, {changed, is_gradient ? 1 : 0}, device);
  for (int64_t rank = 0; rank < communicator.size(); ++rank) {
    const int64_t index = found[static_cast<size_t>(2 * rank)];
    if (index == kNone) continue;
    records_.clear();
    const std::string& name = records.at(static_cast<size_t>(index)).name;
    const bool of_gradient = found[static_cast<size_t>(2 * rank + 1)] != 0;
    throw Error(ErrorCode::kFailedPrecondition,
                std::string(of_gradient ? "the gradient" : "the shard") + " of `" + name + "` on rank " +
                    std::to_string(rank) +
                    " was changed after backward by something other than the engine. Gradients " +
                    "are averaged over the ranks already: a host must not average them again (all-reduce). Clip and " +
                    "unscale with the engine's own calls; a host that changes gradients on purpose sets " +
                    "`debug.check_steps` to 0",
                {.key = "debug.check_steps", .parameter = name, .rank = rank});
  }
}

}  // namespace fsdp2
