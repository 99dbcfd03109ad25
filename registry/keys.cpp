#include "registry/keys.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

using Fault = std::optional<ValueFault>;
using Options = Fsdp2Options;
using Strings = std::vector<std::string>;

Fault no_fault() {
  return std::nullopt;
}

Fault wrong_type(const Value& value) {
  return ValueFault{"not " + std::string(kind_of(value)), {}};
}

std::string in_words(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return "\"" + *text + "\"";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  return std::string(kind_of(value));
}

Fault wrong_value(const Value& value, std::string nearest = {}) {
  return ValueFault{"not " + in_words(value), std::move(nearest)};
}

Fault take_bool(bool& target, const Value& value) {
  const auto* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return wrong_type(value);
  target = *flag;
  return no_fault();
}

template <typename Target>
Fault take_int(Target& target, const Value& value, int64_t least) {
  const auto* whole = std::get_if<int64_t>(&value);
  if (whole == nullptr) return wrong_type(value);
  if (*whole < least) return wrong_value(value);
  target = *whole;
  return no_fault();
}

template <typename Target>
Fault take_positive(Target& target, const Value& value) {
  double number = 0;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  } else {
    return wrong_type(value);
  }
  if (!std::isfinite(number) || number <= 0) return ValueFault{"not " + std::to_string(number), {}};
  target = number;
  return no_fault();
}

Fault take_string(std::string& target, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return wrong_type(value);
  if (text->empty()) return ValueFault{"not an empty string", {}};
  target = *text;
  return no_fault();
}

Fault take_strings(Strings& target, const Value& value, bool may_be_empty) {
  const auto* list = std::get_if<Strings>(&value);
  if (list == nullptr) return wrong_type(value);
  if (list->empty() && !may_be_empty) return ValueFault{"not an empty list", {}};
  for (const std::string& text : *list) {
    if (text.empty()) return ValueFault{"not a list with an empty string", {}};
  }
  target = *list;
  return no_fault();
}

template <typename Enum, size_t N, typename Target>
Fault take_enum(Target& target, const Value& value, const std::array<Enum, N>& choices) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return wrong_type(value);
  std::vector<std::string_view> names;
  for (const Enum choice : choices) {
    if (name_of(choice) == *text) {
      target = choice;
      return no_fault();
    }
    names.push_back(name_of(choice));
  }
  return wrong_value(value, nearest_name(*text, names));
}

constexpr std::array kLayouts{Layout::kRagged, Layout::kPerParameter, Layout::kFlat};
constexpr std::array kPolicies{WrapPolicy::kTransformer, WrapPolicy::kSize, WrapPolicy::kModules, WrapPolicy::kEvery,
                               WrapPolicy::kNone};
constexpr std::array kKinds{CheckpointKind::kSharded, CheckpointKind::kFull};
constexpr std::array kModes{LoadMode::kSharded, LoadMode::kBroadcast, LoadMode::kFull};
constexpr std::array kPrecisions{DType::kFloat32, DType::kFloat16, DType::kBFloat16};

constexpr std::array<std::string_view, 5> kStrategyNames{"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                                         "hybrid_shard_zero2"};

// Names with a prefix of their own come from plugins, so only planning can tell whether they exist.
Fault take_strategy(Options& options, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return wrong_type(value);
  const std::string_view base = strategy_base(*text);
  bool known = is_from_outside(*text);
  for (const std::string_view name : kStrategyNames) known = known || name == base;
  if (!known) {
    std::string nearest = nearest_name(base, kStrategyNames);
    const size_t prefix = text->size() - base.size();
    return wrong_value(value, nearest.empty() ? nearest : text->substr(0, prefix) + nearest);
  }
  options.strategy = *text;
  return no_fault();
}

Fault take_reshard(Options& options, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    options.reshard_after_forward = *flag;
  } else if (const auto* whole = std::get_if<int64_t>(&value)) {
    if (*whole < 1) return wrong_value(value);
    options.reshard_after_forward = *whole;
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    if (*text != "auto") return wrong_value(value, nearest_name(*text, std::array<std::string_view, 1>{"auto"}));
    options.reshard_after_forward = ReshardAuto{};
  } else {
    return wrong_type(value);
  }
  return no_fault();
}

bool give_reshard(const Options& options, Value& out) {
  const ReshardAfterForward& reshard = options.reshard_after_forward;
  if (const auto* flag = std::get_if<bool>(&reshard)) {
    out = *flag;
  } else if (const auto* ranks = std::get_if<int64_t>(&reshard)) {
    out = *ranks;
  } else {
    out = std::string("auto");
  }
  return true;
}

Fault take_version(Options& options, const Value& value) {
  const auto* whole = std::get_if<int64_t>(&value);
  if (whole == nullptr) return wrong_type(value);
  if (*whole != 1 && *whole != 2) return wrong_value(value);
  options.version = *whole;
  return no_fault();
}

Fault take_size_or_rest(std::optional<int64_t>& target, const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value); whole != nullptr && *whole == 0) return wrong_value(value);
  return take_int(target, value, -1);
}

// These put the value into `out`; false: there is none, or it is the default and not printed.
template <typename T>
bool always(const T& now, Value& out) {
  out = now;
  return true;
}

template <typename T>
bool unless(const T& now, const T& standard, Value& out) {
  always(now, out);
  return now != standard;
}

template <typename T>
bool if_set(const std::optional<T>& now, Value& out) {
  return now && always(*now, out);
}

template <typename Enum>
bool name_if_set(const std::optional<Enum>& now, Value& out) {
  return now && always(std::string(name_of(*now)), out);
}

template <typename Enum>
bool name_unless(Enum now, Enum standard, Value& out) {
  always(std::string(name_of(now)), out);
  return now != standard;
}

constexpr std::string_view kOwnPrefix = "strategy_options.";

// Names are the strategy's, so this one checks the type alone and is not in the table.
constexpr KeySpec kOwnOption{"strategy_options", "true or false, a number or a string",
                             [](Options&, const Value& v) {
                               StrategyOption checked;
                               return take_strategy_option(checked, v);
                             },
                             [](const Options&, Value&) { return false; }};

constexpr std::string_view kBool = "true or false";
constexpr std::string_view kCount = "a whole number, 0 or more";
constexpr std::string_view kPositive = "a number above 0";
constexpr std::string_view kString = "a string";
constexpr std::string_view kList = "a list of strings";
constexpr std::string_view kFullList = "a list of strings, not empty";
constexpr std::string_view kRanks = "a number of ranks, 1 or more, or -1 for the rest";
constexpr std::string_view kPrecision = R"("float32", "float16" or "bfloat16")";

// One row a key. The lambdas stay short on purpose: a check that is more than a line has a name above.
constexpr std::array kSpecs{
    KeySpec{"version", "1 or 2", take_version, [](const Options& o, Value& out) { return always(o.version, out); }},
    KeySpec{"strategy",
            R"("full_shard", "shard_grad_op", "no_shard", "hybrid_shard" or "hybrid_shard_zero2", )"
            "with or without the prefix of a version, or a plugin's name with its prefix",
            take_strategy, [](const Options& o, Value& out) { return always(o.strategy, out); }},
    KeySpec{"reshard_after_forward", R"("auto", true, false or a number of ranks, 1 or more)", take_reshard,
            give_reshard},
    KeySpec{"layout", R"("ragged", "per_parameter" or "flat")",
            [](Options& o, const Value& v) { return take_enum(o.layout, v, kLayouts); },
            [](const Options& o, Value& out) { return name_if_set(o.layout, out); }},
    KeySpec{"wrap.policy", R"("transformer", "size", "modules", "every" or "none")",
            [](Options& o, const Value& v) { return take_enum(o.wrap.policy, v, kPolicies); },
            [](const Options& o, Value& out) { return always(std::string(name_of(o.wrap.policy)), out); }},
    KeySpec{"wrap.layer_classes", kFullList,
            [](Options& o, const Value& v) { return take_strings(o.wrap.layer_classes, v, false); },
            [](const Options& o, Value& out) { return unless(o.wrap.layer_classes, Strings{}, out); }},
    KeySpec{"wrap.min_num_params", kCount,
            [](Options& o, const Value& v) { return take_int(o.wrap.min_num_params, v, 0); },
            [](const Options& o, Value& out) { return if_set(o.wrap.min_num_params, out); }},
    KeySpec{"wrap.modules", kFullList,
            [](Options& o, const Value& v) { return take_strings(o.wrap.modules, v, false); },
            [](const Options& o, Value& out) { return unless(o.wrap.modules, {}, out); }},
    KeySpec{"ignored_modules", kList,
            [](Options& o, const Value& v) { return take_strings(o.ignored_modules, v, true); },
            [](const Options& o, Value& out) { return unless(o.ignored_modules, {}, out); }},
    KeySpec{"mesh.replicate", kRanks, [](Options& o, const Value& v) { return take_size_or_rest(o.mesh.replicate, v); },
            [](const Options& o, Value& out) { return if_set(o.mesh.replicate, out); }},
    KeySpec{"mesh.shard", kRanks, [](Options& o, const Value& v) { return take_size_or_rest(o.mesh.shard, v); },
            [](const Options& o, Value& out) { return if_set(o.mesh.shard, out); }},
    KeySpec{"mixed_precision.param", kPrecision,
            [](Options& o, const Value& v) { return take_enum(o.mixed_precision.param, v, kPrecisions); },
            [](const Options& o, Value& out) { return name_if_set(o.mixed_precision.param, out); }},
    KeySpec{"mixed_precision.reduce", kPrecision,
            [](Options& o, const Value& v) { return take_enum(o.mixed_precision.reduce, v, kPrecisions); },
            [](const Options& o, Value& out) { return name_if_set(o.mixed_precision.reduce, out); }},
    KeySpec{"mixed_precision.output", kPrecision,
            [](Options& o, const Value& v) { return take_enum(o.mixed_precision.output, v, kPrecisions); },
            [](const Options& o, Value& out) { return name_if_set(o.mixed_precision.output, out); }},
    KeySpec{"mixed_precision.cast_forward_inputs", kBool,
            [](Options& o, const Value& v) { return take_bool(o.mixed_precision.cast_forward_inputs, v); },
            [](const Options& o, Value& out) { return unless(o.mixed_precision.cast_forward_inputs, true, out); }},
    KeySpec{"offload.params", kBool, [](Options& o, const Value& v) { return take_bool(o.offload.params, v); },
            [](const Options& o, Value& out) { return unless(o.offload.params, false, out); }},
    KeySpec{"offload.pin_memory", kBool, [](Options& o, const Value& v) { return take_bool(o.offload.pin_memory, v); },
            [](const Options& o, Value& out) { return unless(o.offload.pin_memory, true, out); }},
    KeySpec{"prefetch.forward", kCount, [](Options& o, const Value& v) { return take_int(o.prefetch.forward, v, 0); },
            [](const Options& o, Value& out) { return unless<int64_t>(o.prefetch.forward, 1, out); }},
    KeySpec{"prefetch.backward", kCount, [](Options& o, const Value& v) { return take_int(o.prefetch.backward, v, 0); },
            [](const Options& o, Value& out) { return unless<int64_t>(o.prefetch.backward, 1, out); }},
    KeySpec{"activation_checkpointing", "true, false, { every = n } or { classes = [..] }",
            [](Options& o, const Value& v) { return take_bool(o.activation_checkpointing.enabled, v); },
            [](const Options& o, Value& out) {
              const auto& checkpointing = o.activation_checkpointing;
              if (checkpointing.every || !checkpointing.classes.empty()) return false;
              return unless(checkpointing.enabled, false, out);
            }},
    KeySpec{"activation_checkpointing.every", "a whole number, 1 or more",
            [](Options& o, const Value& v) {
              o.activation_checkpointing.enabled = true;
              return take_int(o.activation_checkpointing.every, v, 1);
            },
            [](const Options& o, Value& out) { return if_set(o.activation_checkpointing.every, out); }},
    KeySpec{"activation_checkpointing.classes", kFullList,
            [](Options& o, const Value& v) {
              o.activation_checkpointing.enabled = true;
              return take_strings(o.activation_checkpointing.classes, v, false);
            },
            [](const Options& o, Value& out) { return unless(o.activation_checkpointing.classes, {}, out); }},
    KeySpec{"gradient.clip_norm", kPositive,
            [](Options& o, const Value& v) { return take_positive(o.gradient.clip_norm, v); },
            [](const Options& o, Value& out) { return if_set(o.gradient.clip_norm, out); }},
    KeySpec{"gradient.divide_factor", kPositive,
            [](Options& o, const Value& v) { return take_positive(o.gradient.divide_factor, v); },
            [](const Options& o, Value& out) { return if_set(o.gradient.divide_factor, out); }},
    KeySpec{"checkpoint.kind", R"("sharded" or "full")",
            [](Options& o, const Value& v) { return take_enum(o.checkpoint_kind, v, kKinds); },
            [](const Options& o, Value& out) { return name_unless(o.checkpoint_kind, CheckpointKind::kSharded, out); }},
    KeySpec{"load.mode", R"("sharded", "broadcast" or "full")",
            [](Options& o, const Value& v) { return take_enum(o.load_mode, v, kModes); },
            [](const Options& o, Value& out) { return name_unless(o.load_mode, LoadMode::kSharded, out); }},
    KeySpec{"dialect", kString, [](Options& o, const Value& v) { return take_string(o.dialect, v); },
            [](const Options& o, Value& out) { return unless(o.dialect, {}, out); }},
    KeySpec{"config", kString, [](Options& o, const Value& v) { return take_string(o.config, v); },
            [](const Options& o, Value& out) { return unless(o.config, {}, out); }},
    KeySpec{"plugins", kList, [](Options& o, const Value& v) { return take_strings(o.plugins, v, true); },
            [](const Options& o, Value& out) { return unless(o.plugins, {}, out); }},
    KeySpec{"debug.order_check", "a number of steps, 0 or more, or -1 for all",
            [](Options& o, const Value& v) { return take_int(o.debug.order_check, v, -1); },
            [](const Options& o, Value& out) { return unless<int64_t>(o.debug.order_check, 3, out); }},
    KeySpec{"debug.force_collectives", kBool,
            [](Options& o, const Value& v) { return take_bool(o.debug.force_collectives, v); },
            [](const Options& o, Value& out) { return unless(o.debug.force_collectives, false, out); }},
    KeySpec{"debug.timeout_s", kPositive,
            [](Options& o, const Value& v) { return take_positive(o.debug.timeout_s, v); },
            [](const Options& o, Value& out) { return unless<double>(o.debug.timeout_s, 300, out); }},
    KeySpec{"debug.check_steps", "a number of steps, 0 or more",
            [](Options& o, const Value& v) { return take_int(o.debug.check_steps, v, 0); },
            [](const Options& o, Value& out) { return unless<int64_t>(o.debug.check_steps, 2, out); }},
};

}  // namespace

std::span<const KeySpec> key_specs() {
  return kSpecs;
}

std::string_view strategy_option_name(std::string_view key) {
  if (!key.starts_with(kOwnPrefix)) return {};
  const std::string_view name = key.substr(kOwnPrefix.size());
  const bool is_bare = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return is_bare ? name : std::string_view();
}

std::optional<ValueFault> take_strategy_option(StrategyOption& target, const Value& value) {
  if (std::holds_alternative<Strings>(value)) return wrong_type(value);
  std::visit(
      [&](const auto& given) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(given)>, Strings>) target = given;
      },
      value);
  return no_fault();
}

const KeySpec* find_key(std::string_view name) {
  if (!strategy_option_name(name).empty()) return &kOwnOption;
  for (const KeySpec& spec : kSpecs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::optional<Value> value_of(const KeySpec& spec, const Fsdp2Options& options) {
  const Value none = std::string();
  Value value = none;
  const bool is_set = spec.give(options, value);
  return is_set || value != none ? std::optional<Value>(value) : std::nullopt;
}

std::string nearest_key(std::string_view written) {
  std::vector<std::string_view> names;
  names.reserve(kSpecs.size());
  for (const KeySpec& spec : kSpecs) names.push_back(spec.name);
  return nearest_name(written, names);
}

std::string_view kind_of(const Value& value) {
  constexpr std::array<std::string_view, 5> kKindNames{"a boolean", "a whole number", "a decimal number", "a string",
                                                       "a list of strings"};
  return kKindNames[value.index()];
}

}  // namespace fsdp2
