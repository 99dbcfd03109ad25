#include "plugin/cli/memory_search.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "registry/error.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2::cli {
namespace {

struct Change {
  std::string text;
  std::function<void(Fsdp2Options& options)> apply;
};

bool keeps_units(const Fsdp2Options& options) {
  const std::string_view strategy = strategy_base(options.strategy);
  return strategy == "shard_grad_op" || strategy == "hybrid_shard_zero2";
}

/// On one line, as an override takes it.
std::string wrap_text(const WrapOptions& wrap) {
  std::string text = "wrap = { policy = \"" + std::string(name_of(wrap.policy)) + "\"";
  const auto list = [](const std::vector<std::string>& names) {
    const std::vector<std::string_view> views(names.begin(), names.end());
    return "[" + quoted_list(views) + "]";
  };
  if (!wrap.layer_classes.empty()) text += ", layer_classes = " + list(wrap.layer_classes);
  if (!wrap.modules.empty()) text += ", modules = " + list(wrap.modules);
  if (wrap.min_num_params) text += ", min_num_params = " + std::to_string(*wrap.min_num_params);
  return text + " }";
}

/// What can take memory away, of what the options do not have yet.
std::vector<Change> changes_of(const Fsdp2Options& options, const std::optional<WrapOptions>& suggested) {
  const std::string_view strategy = strategy_base(options.strategy);
  const bool is_hybrid = strategy.starts_with("hybrid_");
  std::vector<Change> changes;
  if (strategy == "no_shard" || strategy == "shard_grad_op" || is_hybrid || options.mesh.replicate ||
      options.mesh.shard) {
    changes.push_back({"strategy = \"full_shard\" over all ranks", [](Fsdp2Options& o) {
                         o.strategy = "full_shard";
                         o.mesh = {};
                         o.reshard_after_forward = true;
                       }});
  }
  if (keeps_units(options) && is_hybrid) {
    changes.push_back({"strategy = \"hybrid_shard\"", [](Fsdp2Options& o) { o.strategy = "hybrid_shard"; }});
  }
  if (strategy == "full_shard" || strategy == "hybrid_shard") {
    if (options.reshard_after_forward != ReshardAfterForward(true)) {
      changes.push_back({"reshard_after_forward = true", [](Fsdp2Options& o) { o.reshard_after_forward = true; }});
    }
  }
  if (suggested && options.wrap != *suggested) {
    changes.push_back({wrap_text(*suggested), [wrap = *suggested](Fsdp2Options& o) { o.wrap = wrap; }});
  }
  if (!options.mixed_precision.param || size_of(*options.mixed_precision.param) > 2) {
    changes.push_back(
        {"mixed_precision.param = \"bfloat16\"", [](Fsdp2Options& o) { o.mixed_precision.param = DType::kBFloat16; }});
  }
  if (options.prefetch.forward > 0 || options.prefetch.backward > 0) {
    changes.push_back({"prefetch = { forward = 0, backward = 0 }", [](Fsdp2Options& o) { o.prefetch = {0, 0}; }});
  }
  return changes;
}

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

class Search {
 public:
  Search(const Config& config, int64_t world, int64_t limit, const PeakOf& peak_of)
      : config_(config), world_(world), limit_(limit), peak_of_(peak_of) {}

  std::vector<Alternative> run(const std::vector<Change>& changes) {
    const int64_t now = peak(config_, world_).value_or(kNone);
    for (const Change& change : changes) {
      const int64_t then = peak(with(config_, change), world_).value_or(kNone);
      if (then < now) found_.push_back({{change.text}, then, then <= limit_});
    }
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.peak < b.peak; });
    if (!any_fits()) add_together(changes, now);
    if (!any_fits()) add_more_ranks();
    return std::move(found_);
  }

 private:
  [[nodiscard]] std::optional<int64_t> peak(const Config& config, int64_t world) const {
    try {
      return peak_of_(config, world);
    } catch (const Error&) {  // such a plan there is not
      return std::nullopt;
    }
  }

  static Config with(Config config, const Change& change) {
    change.apply(config.options);
    return config;
  }

  [[nodiscard]] bool any_fits() const {
    return std::any_of(found_.begin(), found_.end(), [](const Alternative& a) { return a.fits; });
  }

  /// At each turn the change that takes most away, until they fit or nothing helps. One may help only beside another.
  void add_together(std::vector<Change> left, int64_t now) {
    best_ = config_;
    while (now > limit_) {
      size_t best = left.size();
      for (size_t i = 0; i < left.size(); ++i) {
        const int64_t then = peak(with(best_, left[i]), world_).value_or(kNone);
        if (then >= now) continue;
        best = i;
        now = then;
      }
      if (best == left.size()) break;
      left[best].apply(best_.options);
      together_.push_back(left[best].text);
      left.erase(left.begin() + static_cast<int64_t>(best));
    }
    if (together_.size() > 1) found_.push_back({together_, now, now <= limit_});
  }

  /// Twice as many, until they fit, with all that helps.
  void add_more_ranks() {
    constexpr int64_t kMostRanks = int64_t{1} << 17;
    for (int64_t world = world_ * 2; world <= kMostRanks; world *= 2) {
      const int64_t then = peak(best_, world).value_or(kNone);
      if (then > limit_) continue;
      together_.push_back("--world " + std::to_string(world));
      found_.push_back({together_, then, true});
      return;
    }
  }

  const Config& config_;
  int64_t world_;
  int64_t limit_;
  const PeakOf& peak_of_;
  std::vector<Alternative> found_;
  Config best_;                        // with all changes that help together,
  std::vector<std::string> together_;  // which are these
};

}  // namespace

std::vector<Alternative> find_alternatives(const Config& config, int64_t world, int64_t limit, const PeakOf& peak_of,
                                           const std::optional<WrapOptions>& suggested) {
  return Search(config, world, limit, peak_of).run(changes_of(config.options, suggested));
}

}  // namespace fsdp2::cli
