#include "adapters/rank_counts.hpp"

#include <array>
#include <string_view>

#include "adapters/limits.hpp"
#include "registry/mesh.hpp"
#include "registry/nearest_name.hpp"
#include "registry/reshard.hpp"

namespace fsdp2 {
namespace {

struct CountName {
  std::string_view name;
  std::optional<int64_t> RankCounts::*count;
};
constexpr std::array<CountName, 3> kCountNames{{{"num_processes", &RankCounts::num_processes},
                                                {"num_nodes", &RankCounts::num_nodes},
                                                {"processes_per_node", &RankCounts::processes_per_node}}};

Error wrong_count(const std::string& pair, const std::string& sentence, const std::string& nearest = {}) {
  ErrorDetails details;
  details.nearest = nearest;
  const std::string text = "`" + pair.substr(0, limits::kShownBytes) + "` " + sentence + did_you_mean(nearest);
  return Error(ErrorCode::kInvalidArgument, text, details);
}

void take_count(const std::string& pair, RankCounts& ranks) {
  std::array<std::string_view, kCountNames.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kCountNames[i].name;
  const size_t equals = pair.find('=');
  const std::string name = pair.substr(0, equals);
  for (const CountName& row : kCountNames) {
    if (row.name != name) continue;
    const std::optional<int64_t> count = equals == std::string::npos ? std::nullopt : int_of(pair.substr(equals + 1));
    if (!count || *count < 1) {
      throw wrong_count(pair, "must be " + name + "=N, with a whole number of 1 or more");
    }
    ranks.*row.count = count;
    return;
  }
  throw wrong_count(pair, "is none of what can be told: " + quoted_list(names), nearest_name(name, names));
}

}  // namespace

RankCounts read_rank_counts(std::span<const std::string> pairs) {
  RankCounts ranks;
  for (const std::string& pair : pairs) take_count(pair, ranks);
  auto& [all, nodes, on_node] = ranks;
  for (const std::optional<int64_t>& part : {nodes, on_node}) {
    if (!all || !part || *all % *part == 0) continue;
    throw wrong_count("num_processes=" + std::to_string(*all),
                      std::string("does not divide ") +
                          (part == nodes ? "among num_nodes=" : "by processes_per_node=") + std::to_string(*part));
  }
  if (all && nodes && on_node && *all / *nodes != *on_node) {
    throw wrong_count("num_processes=" + std::to_string(*all), "is not num_nodes=" + std::to_string(*nodes) +
                                                                   " x processes_per_node=" + std::to_string(*on_node));
  }
  if (all && nodes) on_node = *all / *nodes;
  if (all && on_node) nodes = *all / *on_node;
  int64_t product = 0;
  if (nodes && on_node) {
    if (__builtin_mul_overflow(*nodes, *on_node, &product)) {
      throw wrong_count("num_nodes=" + std::to_string(*nodes), "makes more ranks than can be counted");
    }
    all = product;
  }
  return ranks;
}

Setting count_setting(const std::string& name, int64_t count) {
  Setting setting;
  setting.kind = Setting::Kind::kInt;
  setting.whole = count;
  setting.text = std::to_string(count);
  setting.key = name;
  setting.source.override_text = "--context " + name + "=" + setting.text;
  setting.source.key = name;
  setting.source.translated = true;
  setting.key_source = setting.source;
  return setting;
}

std::optional<std::string> put_count(SettingsTable& settings, const std::string& key, const std::string& name,
                                     std::optional<int64_t> count) {
  if (!count) return std::nullopt;
  const Setting known = count_setting(name, *count);
  const Setting* written = find_entry(settings, key);
  std::optional<std::string> note;
  if (written != nullptr && as_int(*written) != count) {
    note = place(written->source) + "`" + as_written(*written) + "` gives way to `" + known.source.override_text + "`";
  }
  settings.insert_or_assign(key, known);
  return note;
}

void check_ranks(const Config& config, const RankCounts& ranks) {
  if (!ranks.num_processes) return;
  const Fsdp2Options& options = config.options;
  const bool by_nodes =
      strategy_base(options.strategy).starts_with("hybrid_") && !options.mesh.replicate && !options.mesh.shard;
  if (by_nodes && !ranks.processes_per_node) return;
  const Mesh mesh = mesh_of(config, *ranks.num_processes, ranks.processes_per_node);
  const auto* block = std::get_if<int64_t>(&options.reshard_after_forward);
  if (block == nullptr) return;
  const std::string fault = fault_of_block(*block, mesh);
  if (fault.empty()) return;
  const Source source = source_of(config, "reshard_after_forward");
  throw error_at(source, source.key.empty() ? "reshard_after_forward" : source.key,
                 (source.key.empty() ? "" : "`" + source.key + "` is ") + fault);
}

}  // namespace fsdp2
