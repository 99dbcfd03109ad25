// Parameters that something else than their own attribute holds or reads: in step with the shards, or refused by name.
#include <gtest/gtest.h>

#include "registry/error.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

RANK_CASE_ON(OtherHolders, recurrent_layers, 2, 4) {
  expect_odd_trains(context, "Recurrent", {"LSTM", "GRU", "Layer"});
}
RANK_CASE(OtherHolders, recurrent_layers_in_the_root) {
  expect_odd_trains(context, "Recurrent", {});
}

RANK_CASE(OtherHolders, list_over_units) {
  expect_odd_trains(context, "ListOverUnits", {"InList", "Layer"});
  expect_odd_trains(context, "ListOverUnits", {"Linear"});
}

RANK_CASE(OtherHolders, hooks) {
  expect_odd_trains(context, "Hooked", {"Layer"});
  expect_odd_trains(context, "Hooked", {"Linear"});
}

RANK_CASE(OtherHolders, parameters_side_by_side_in_one_memory) {
  expect_odd_trains(context, "OneMemory", {"Linear"});
}

/// Detached, the list holds the plain tensors that the attributes hold.
RANK_CASE(OtherHolders, list_after_detach) {
  auto module = load(context, "Recurrent");
  const auto sharded = shard(context, module, units_of({"LSTM"}));
  sharded->detach();
  const auto lstm = module.attr("lstm").toModule();
  const auto list = lstm.attr("_flat_weights").toTensorVector();
  const auto names = lstm.attr("_flat_weights_names").toList();
  ASSERT_EQ(list.size(), 16U);
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_TRUE(list[i].is_same(lstm.attr(names.get(i).toStringRef()).toTensor())) << i;
  }
}

void expect_refused(RankContext& context, const std::string& model, const std::vector<std::string>& parts) {
  auto module = load(context, model);
  try {
    shard(context, module, units_of({"Linear"}));
    ADD_FAILURE() << model << " was sharded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

RANK_CASE(OtherHolders, memory_that_is_shared_is_refused) {
  expect_refused(context, "SharedWithBuffer", {"`layer.up.weight`", "`old`", "shares its memory"});
  expect_refused(context, "SharedMemory", {"`last.up.weight`", "`first.up.weight`", "shares its memory"});
}
RANK_CASE(OtherHolders, dictionary_is_refused) {
  expect_refused(context, "InDict", {"`layer.up.weight`", "`named`"});
}
RANK_CASE(OtherHolders, hook_of_the_root_is_refused) {
  expect_refused(context, "HookedRoot", {"`up.bias`", "hook"});
}

/// Frozen, a module's parameters are constants of its code.
RANK_CASE(OtherHolders, frozen_module_is_refused) {
  expect_refused(context, "FrozenRoot", {"the module was frozen by torch.jit.freeze", "without freezing"});
  expect_refused(context, "AroundFrozen", {"`encoder` was frozen by torch.jit.freeze"});
  auto module = load(context, "BesideFrozen");
  try {
    shard(context, module, units_of({"Layer"}));
    ADD_FAILURE() << "a frozen unit was sharded";
  } catch (const Error& error) {
    EXPECT_EQ(error.details().module, "encoder");
    EXPECT_TRUE(error.details().file.ends_with(".py")) << error.what();
    EXPECT_GT(error.details().line.value_or(0), 0);
  }
}
RANK_CASE(OtherHolders, frozen_part_beside_units) {
  expect_odd_trains(context, "BesideFrozen", {"Linear"});
  std::vector<LogLine> log;
  const auto sharded = shard(context, load(context, "BesideFrozen"), units_of({"Linear"}), nullptr, &log);
  ASSERT_EQ(log.size(), 1U);
  EXPECT_TRUE(log[0].warning);
  EXPECT_TRUE(log[0].text.starts_with("`encoder` was frozen by torch.jit.freeze")) << log[0].text;
}

}  // namespace
}  // namespace fsdp2::testing
