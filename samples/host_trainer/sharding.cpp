#include "samples/host_trainer/sharding.hpp"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <fsdp2/plugin.hpp>
#include <optional>

namespace trainer {

struct Sharding::Impl {
  fsdp2::Plugin plugin;
  fsdp2::Configuration config;
  std::optional<double> clip_norm;
  std::optional<fsdp2::Engine> engine;
};

namespace {

fsdp2::LogCallback log_to_stderr(bool speaks) {
  if (!speaks) return nullptr;
  return [](fsdp2_log_level level, const std::string& text) {
    std::fprintf(stderr, "%s: %s\n", level == FSDP2_LOG_WARNING ? "warning" : "note", text.c_str());
  };
}

}  // namespace

Sharding::Sharding(const CommandLine& options, const Config& config, bool speaks) {
  fsdp2::Plugin plugin = fsdp2::Plugin::load(options.plugin, log_to_stderr(speaks));
  fsdp2::Configuration configuration = plugin.config_from_file(config.path, config.fsdp_overrides);
  const std::optional<double> clip_norm = clip_norm_of(configuration.toml());
  impl_.reset(new Impl{std::move(plugin), std::move(configuration), clip_norm, std::nullopt});
}

Sharding::~Sharding() = default;
Sharding::Sharding(Sharding&&) noexcept = default;
Sharding& Sharding::operator=(Sharding&&) noexcept = default;

std::string Sharding::plan(const torch::jit::Module& module, int64_t world, int64_t ranks_per_node) {
  return impl_->plugin.plan_text(module, impl_->config, world, ranks_per_node);
}

void Sharding::shard(torch::jit::Module& module, const RankGroup& group) {
  impl_->engine.emplace(impl_->plugin.shard(module, impl_->config, group.ranks()));
}

std::optional<double> Sharding::clip_norm() const {
  return impl_->clip_norm;
}

void Sharding::clip_gradients(const std::vector<at::Tensor>& whole) {
  fsdp2::Engine& engine = *impl_->engine;
  if (!impl_->clip_norm || whole.empty()) {
    engine.clip_gradients();
    return;
  }
  // The engine knows its shards alone: the factor is that of all.
  const double own = engine.gradient_norm();
  double squares = own * own;
  for (const at::Tensor& parameter : whole) squares += std::pow(parameter.grad().norm().item<double>(), 2);
  const double factor = *impl_->clip_norm / (std::sqrt(squares) + 1e-6);
  // A norm that is no number spreads, as in torch.nn.utils.clip_grad_norm_; from `whole` alone by the next forward.
  const double own_limit = factor * (own + 1e-6);
  engine.clip_gradient_norm(std::isnan(own_limit) ? *impl_->clip_norm : own_limit);
  if (factor >= 1) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : whole) parameter.grad().mul_(factor);
}

std::vector<at::Tensor> Sharding::parameters() const {
  return impl_->engine->parameters();
}

ShardingCounters Sharding::counters() const {
  const fsdp2_statistics s = impl_->engine->statistics();
  return {.all_gather_bytes = s.all_gather_bytes,
          .reduce_scatter_bytes = s.reduce_scatter_bytes,
          .unsharded_peak_bytes = s.unsharded_peak_bytes,
          .shard_bytes = s.shard_bytes,
          .parameter_bytes = s.parameter_bytes,
          .planned_peak_bytes = s.planned_peak_bytes,
          .units = s.units};
}

std::string Sharding::strategy() const {
  const std::string plan = impl_->engine->plan_text();
  return plan.substr(0, plan.find('\n'));
}

void Sharding::detach() {
  impl_->engine->detach();
}

}  // namespace trainer
