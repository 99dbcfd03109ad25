#include "registry/consistency.hpp"

#include <string>
#include <utility>

namespace fsdp2 {
namespace {

struct Side {
  std::string key;   // canonical
  std::string text;  // "strategy = \"no_shard\""
};

/// An override is later than a file; in a file the lower line is.
bool is_later(const Source& a, const Source& b) {
  if (a.override_text.empty() != b.override_text.empty()) return !a.override_text.empty();
  return std::pair(a.line, a.column) > std::pair(b.line, b.column);
}

std::string in_brackets(const Source& source) {
  if (!source.override_text.empty()) return " (override `" + source.override_text + "`)";
  if (source.file.empty()) return {};
  std::string text = " (" + source.file;
  if (source.line > 0) text += ":" + std::to_string(source.line) + ":" + std::to_string(source.column);
  return text + ")";
}

/// The later side is where the fault is reported, the other one is named with its place.
Error contradiction(const Config& config, Side a, Side b, const std::string& allowed) {
  if (is_later(source_of(config, a.key), source_of(config, b.key))) std::swap(a, b);
  const Source other = source_of(config, a.key);
  const Source source = source_of(config, b.key);
  return error_at(source, b.key, "`" + b.text + "` contradicts `" + a.text + "`" + in_brackets(other) + ": " + allowed);
}

std::string in_words(const ReshardAfterForward& reshard) {
  if (const auto* flag = std::get_if<bool>(&reshard)) return *flag ? "true" : "false";
  if (const auto* ranks = std::get_if<int64_t>(&reshard)) return std::to_string(*ranks);
  return "\"auto\"";
}

bool reshards(std::string_view base) {
  return base == "full_shard" || base == "hybrid_shard";
}

bool keeps(std::string_view base) {
  return base == "shard_grad_op" || base == "no_shard" || base == "hybrid_shard_zero2";
}

void check_strategy(const Config& config) {
  const Fsdp2Options& options = config.options;
  if (goes_together(options.strategy, options.reshard_after_forward)) return;
  const std::string allowed = reshards(strategy_base(options.strategy))
                                  ? "that strategy reshards after forward (true, \"auto\" or a number of ranks)"
                                  : "that strategy does not reshard after forward (false or \"auto\")";
  throw contradiction(config, {"strategy", "strategy = \"" + options.strategy + "\""},
                      {"reshard_after_forward", "reshard_after_forward = " + in_words(options.reshard_after_forward)},
                      allowed);
}

void check_wrap_key(const Config& config, const std::string& key, bool is_set, WrapPolicy owner) {
  const WrapPolicy policy = config.options.wrap.policy;
  if (!is_set || policy == owner) return;
  const std::string standard = config.sources.contains("wrap.policy") ? "" : ", the default";
  throw error_at(source_of(config, key), key,
                 "`" + key + "` goes with `wrap.policy = \"" + std::string(name_of(owner)) +
                     "\"` only, and the policy is \"" + std::string(name_of(policy)) + "\"" + standard);
}

void check_mesh(const Config& config) {
  const MeshOptions& mesh = config.options.mesh;
  if (mesh.replicate.value_or(1) != -1) return;
  if (mesh.shard.value_or(-1) != -1) return;
  const std::string shard = mesh.shard ? "" : ", the default; give `mesh.shard` a number of ranks";
  throw contradiction(config, {"mesh.shard", "mesh.shard = -1"}, {"mesh.replicate", "mesh.replicate = -1"},
                      "only one of the two can be -1, the rest of the ranks" + shard);
}

void check_strategy_options(const Config& config) {
  const Fsdp2Options& options = config.options;
  if (options.strategy_options.empty() || is_from_outside(options.strategy)) return;
  const std::string key = "strategy_options." + options.strategy_options.begin()->first;
  throw error_at(source_of(config, key), key,
                 "`" + key + "` goes with a strategy from one of `plugins` only, and the strategy is \"" +
                     options.strategy + "\"");
}

}  // namespace

bool goes_together(std::string_view strategy, const ReshardAfterForward& reshard) {
  if (std::holds_alternative<ReshardAuto>(reshard)) return true;
  if (const auto* ranks = std::get_if<int64_t>(&reshard); ranks != nullptr && *ranks == 1) return true;  // keeps
  const bool* flag = std::get_if<bool>(&reshard);
  const bool wants_keep = flag != nullptr && !*flag;
  const std::string_view base = strategy_base(strategy);
  return wants_keep ? !reshards(base) : !keeps(base);
}

void check_consistent(const Config& config) {
  const WrapOptions& wrap = config.options.wrap;
  check_strategy(config);
  check_wrap_key(config, "wrap.layer_classes", !wrap.layer_classes.empty(), WrapPolicy::kTransformer);
  check_wrap_key(config, "wrap.min_num_params", wrap.min_num_params.has_value(), WrapPolicy::kSize);
  check_wrap_key(config, "wrap.modules", !wrap.modules.empty(), WrapPolicy::kModules);
  check_mesh(config);
  check_strategy_options(config);
  const bool has_dialect = !config.options.dialect.empty();
  const bool has_config = !config.options.config.empty();
  if (has_dialect != has_config) {
    const std::string key = has_dialect ? "dialect" : "config";
    const std::string other = has_dialect ? "config" : "dialect";
    throw error_at(source_of(config, key), key, "`" + key + "` needs `" + other + "` beside it");
  }
}

void check_wrap_complete(const Config& config) {
  const WrapOptions& wrap = config.options.wrap;
  std::string needed;
  if (wrap.policy == WrapPolicy::kTransformer && wrap.layer_classes.empty()) needed = "wrap.layer_classes";
  if (wrap.policy == WrapPolicy::kSize && !wrap.min_num_params) needed = "wrap.min_num_params";
  if (wrap.policy == WrapPolicy::kModules && wrap.modules.empty()) needed = "wrap.modules";
  if (needed.empty()) return;
  throw error_at(source_of(config, "wrap.policy"), "wrap.policy",
                 "`wrap.policy = \"" + std::string(name_of(wrap.policy)) + "\"` needs `" + needed + "` beside it");
}

}  // namespace fsdp2
