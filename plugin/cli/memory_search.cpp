#include "plugin/cli/memory_search.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "registry/error.hpp"
#include "registry/toml_reader.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2::cli {
namespace {

/// Overrides of [fsdp] that belong together: what is tried is what is printed.
using Change = std::vector<std::string>;

/// What can take memory away, of what the options do not have yet.
std::vector<Change> changes_of(const Fsdp2Options& options, const std::optional<WrapOptions>& suggested) {
  const std::string_view strategy = strategy_base(options.strategy);
  const bool is_hybrid = strategy.starts_with("hybrid_");
  const bool has_mesh = options.mesh.replicate || options.mesh.shard;
  std::vector<Change> changes;
  if (strategy == "no_shard" || strategy == "shard_grad_op" || is_hybrid || has_mesh) {
    Change all_ranks{"strategy=\"full_shard\"", "reshard_after_forward=true"};
    if (has_mesh) all_ranks.insert(all_ranks.end(), {"mesh.replicate=1", "mesh.shard=-1"});
    changes.push_back(std::move(all_ranks));
  }
  if (strategy == "hybrid_shard_zero2") {
    changes.push_back({"strategy=\"hybrid_shard\"", "reshard_after_forward=true"});
  } else if (strategy == "full_shard" || strategy == "hybrid_shard") {
    if (options.reshard_after_forward != ReshardAfterForward(true)) changes.push_back({"reshard_after_forward=true"});
  }
  if (suggested && options.wrap != *suggested) changes.push_back({"wrap=" + wrap_to_inline_toml(*suggested)});
  if (!options.mixed_precision.param || size_of(*options.mixed_precision.param) > 2) {
    changes.push_back({"mixed_precision.param=\"bfloat16\""});
  }
  if (layout_of(options) != Layout::kRagged) changes.push_back({"layout=\"ragged\""});
  if (options.prefetch.forward > 0 || options.prefetch.backward > 0) {
    changes.push_back({"prefetch={ forward = 0, backward = 0 }"});
  }
  return changes;
}

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

class Search {
 public:
  Search(const Config& config, int64_t world, int64_t limit, const PeakOf& peak_of, std::optional<int64_t> node)
      : config_(config), world_(world), limit_(limit), peak_of_(peak_of), node_(node) {}

  std::vector<Alternative> run(const std::vector<Change>& changes) {
    const int64_t now = peak(config_, world_).value_or(kNone);
    for (const Change& change : changes) {
      const int64_t then = peak_with(config_, change).value_or(kNone);
      if (then < now) found_.push_back({change, then, then <= limit_});
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

  static Config with(const Config& config, const Change& change) {
    GivenKeys given = read_given(to_toml(config.options), "the options");
    apply_overrides(given, change);
    Config changed = resolve(given);
    changed.extensions = config.extensions;
    return changed;
  }

  [[nodiscard]] std::optional<int64_t> peak_with(const Config& config, const Change& change) const {
    try {
      return peak_of_(with(config, change), world_);
    } catch (const Error&) {
      return std::nullopt;
    }
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
        const int64_t then = peak_with(best_, left[i]).value_or(kNone);
        if (then >= now) continue;
        best = i;
        now = then;
      }
      if (best == left.size()) break;
      best_ = with(best_, left[best]);
      together_.insert(together_.end(), left[best].begin(), left[best].end());
      ++joined_;
      left.erase(left.begin() + static_cast<int64_t>(best));
    }
    if (joined_ > 1) found_.push_back({together_, now, now <= limit_});
  }

  /// Twice as many, until they fit, with all that helps. What is cut into as many parts halves each time, so that all
  /// further doublings together take away no more than the last one did.
  void add_more_ranks() {
    int64_t last = kNone;
    for (int64_t world = world_ * 2; world <= kMostRanks; world *= 2) {
      const int64_t then = peak(best_, world).value_or(kNone);
      if (last != kNone && then != kNone && then - std::max<int64_t>(0, last - then) > limit_) return;
      last = then;
      if (then > limit_) continue;
      together_.push_back("--world " + std::to_string(world) +
                          (node_ ? " --nodes " + std::to_string(world / *node_) : ""));
      found_.push_back({together_, then, true});
      return;
    }
  }

  const Config& config_;
  int64_t world_;
  int64_t limit_;
  const PeakOf& peak_of_;
  std::optional<int64_t> node_;
  std::vector<Alternative> found_;
  Config best_;                        // with all changes that help together,
  std::vector<std::string> together_;  // which are these,
  size_t joined_ = 0;                  // so many
};

}  // namespace

std::vector<Alternative> find_alternatives(const Config& config, int64_t world, int64_t limit, const PeakOf& peak_of,
                                           const std::optional<WrapOptions>& suggested,
                                           std::optional<int64_t> ranks_per_node) {
  return Search(config, world, limit, peak_of, ranks_per_node).run(changes_of(config.options, suggested));
}

}  // namespace fsdp2::cli
