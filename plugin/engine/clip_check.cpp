#include "plugin/engine/clip_check.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "plugin/engine/content_hash.hpp"
#include "plugin/engine/unit.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2 {

ClipCheck::ClipCheck(std::optional<double> clip_norm, LogFunction log)
    : clip_norm_(log ? clip_norm : std::nullopt), log_(std::move(log)) {}

void ClipCheck::record(std::span<const std::weak_ptr<Unit>> units) {
  records_.clear();
  if (!clip_norm_) return;
  for (const auto& weak : units) {
    const auto unit = weak.lock();
    if (unit == nullptr) continue;
    for (const UnitParameter& p : unit->parameters()) {
      if (p.shard.requires_grad() && p.shard.numel() > 0) records_.push_back({p.shard, content_hash(p.shard)});
    }
  }
}

void ClipCheck::verify() {
  const bool stepped = std::any_of(records_.begin(), records_.end(),
                                   [](const Record& record) { return content_hash(record.shard) != record.hash; });
  if (!stepped) return;
  log_(true,
       "parameters were changed after backward, as by an optimizer's step, and the engine has not clipped by a norm: "
       "`gradient.clip_norm = " +
           value_text(Value(*clip_norm_)) + "` takes effect by `engine.clip_gradients()` " +
           "(engine_clip_gradients in C), which the host has to call between backward and the step");
  end();
}

void ClipCheck::end() {
  clip_norm_.reset();
  records_.clear();
}

}  // namespace fsdp2
