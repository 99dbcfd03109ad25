#include "registry/options.hpp"

namespace fsdp2 {

std::string_view name_of(Layout layout) {
  switch (layout) {
    case Layout::kRagged:
      return "ragged";
    case Layout::kPerParameter:
      return "per_parameter";
    case Layout::kFlat:
      return "flat";
  }
  return {};
}

std::string_view name_of(WrapPolicy policy) {
  switch (policy) {
    case WrapPolicy::kTransformer:
      return "transformer";
    case WrapPolicy::kSize:
      return "size";
    case WrapPolicy::kModules:
      return "modules";
    case WrapPolicy::kEvery:
      return "every";
    case WrapPolicy::kNone:
      return "none";
  }
  return {};
}

std::string_view name_of(CheckpointKind kind) {
  return kind == CheckpointKind::kFull ? "full" : "sharded";
}

std::string_view name_of(LoadMode mode) {
  switch (mode) {
    case LoadMode::kSharded:
      return "sharded";
    case LoadMode::kBroadcast:
      return "broadcast";
    case LoadMode::kFull:
      return "full";
  }
  return {};
}

Layout layout_of(const Fsdp2Options& options) {
  return options.layout.value_or(options.version == 1 ? Layout::kFlat : Layout::kRagged);
}

std::string_view strategy_base(std::string_view strategy) {
  if (strategy.starts_with("fsdp1.") || strategy.starts_with("fsdp2.")) return strategy.substr(6);
  return strategy;
}

bool is_from_outside(std::string_view strategy) {
  return strategy_base(strategy).find('.') != std::string_view::npos;
}

std::string strategy_full_name(const Fsdp2Options& options) {
  if (options.strategy.find('.') != std::string::npos) return options.strategy;
  return "fsdp" + std::to_string(options.version) + "." + options.strategy;
}

}  // namespace fsdp2
