// Ranks that do not hold or do the same: found at the start, or in the first steps, with both sides named.
#include <gtest/gtest.h>

#include "registry/error.hpp"
#include "tests/ranks/harness/refusal.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

RANK_CASE_ON(RanksThatDiffer, ranks_with_different_weights, 2, 4) {
  for (const char* first : {"a.up.weight", "b.down.bias"}) {
    auto module = load(context, "ThreeLayers");
    auto parameters = named_parameters(module);
    if (context.rank() == context.world() - 1) {
      const at::NoGradGuard guard;
      parameters.at("c.up.weight").view({-1})[5].add_(1e-6);
      parameters.at(first).view({-1})[3].add_(1e-6);
    }
    const Refusal refusal = refusal_of([&] { shard(context, module, units_of({"Layer"})); });
    EXPECT_NE(refusal.text.find(first), std::string::npos) << refusal.text;
    EXPECT_EQ(refusal.details.parameter, first);
    EXPECT_NE(refusal.text.find("rank " + std::to_string(context.world() - 1)), std::string::npos) << refusal.text;
    // As it was, and usable.
    for (const auto& [name, tensor] : named_parameters(module)) EXPECT_TRUE(tensor.is_same(parameters.at(name)));
    mean_square(module.forward({odd_input(0, context.rank())})).backward();
    for (const auto& [name, tensor] : named_parameters(module)) EXPECT_TRUE(tensor.grad().defined()) << name;
  }
}

/// The others do not wait for a rank that finds a fault of its own.
RANK_CASE(RanksThatDiffer, one_rank_that_cannot_start) {
  auto module = load(context, "ThreeLayers");
  if (context.rank() == 1) {
    auto weight = module.attr("b").toModule().attr("up").toModule().attr("weight").toTensor();
    weight.set_data(weight.detach().clone().t());
  }
  const Refusal refusal = refusal_of([&] { shard(context, module, units_of({"Layer"})); });
  const std::string wanted = context.rank() == 1 ? "`b.up.weight`" : "rank 1 could not be sharded";
  EXPECT_NE(refusal.text.find(wanted), std::string::npos) << refusal.text;
}

RANK_CASE_ON(RanksThatDiffer, ranks_with_different_plans, 2, 4) {
  auto module = load(context, "ThreeLayers");
  const bool other = context.rank() == 1;
  const Refusal refusal = refusal_of([&] { shard(context, module, units_of({other ? "Linear" : "Layer"})); });
  EXPECT_NE(refusal.text.find("rank 1 has another model or other options than rank 0: rank 0 has `a "),
            std::string::npos)
      << refusal.text;
  EXPECT_NE(refusal.text.find(", it has `a.up "), std::string::npos) << refusal.text;
}

/// Settings that change what is sent, or what is made of it.
RANK_CASE_ON(RanksThatDiffer, ranks_with_different_settings, 2) {
  const std::vector<std::pair<std::string, std::function<void(Sharding&)>>> changes{
      {"prefetch.forward = 2", [](Sharding& s) { s.prefetch.forward = 2; }},
      {"prefetch.backward = 0", [](Sharding& s) { s.prefetch.backward = 0; }},
      {"gradient.divide_factor = 3", [](Sharding& s) { s.divide_factor = 3; }},
      {"gradient.clip_norm = 0.5", [](Sharding& s) { s.clip_norm = 0.5; }},
      {"debug.check_steps = 1", [](Sharding& s) { s.check_steps = 1; }},
      {"debug.order_check = 1", [](Sharding& s) { s.order_check = 1; }},
      {"load.mode = \"broadcast\"", [](Sharding& s) { s.load_mode = LoadMode::kBroadcast; }},
      {"are reduced in float16", [](Sharding& s) { s.precision.reduce = DType::kFloat16; }},
  };
  auto module = load(context, "ThreeLayers");
  for (const auto& [wanted, change] : changes) {
    Sharding sharding = units_of({"Layer"});
    if (context.rank() == 1) change(sharding);
    const Refusal refusal = refusal_of([&] { shard(context, module, sharding); });
    EXPECT_NE(refusal.text.find("rank 1 has another model or other options than rank 0: rank 0 has `"),
              std::string::npos)
        << refusal.text;
    const size_t its = refusal.text.find(", it has `");
    EXPECT_NE(refusal.text.find(wanted, std::min(its, refusal.text.size())), std::string::npos) << refusal.text;
  }
}

RANK_CASE_ON(RanksThatDiffer, ranks_with_different_models, 2, 4) {
  auto module = load(context, context.rank() == 1 ? "SideBySide" : "ThreeLayers");
  const Refusal refusal = refusal_of([&] { shard(context, module, units_of({"Layer"})); });
  EXPECT_NE(refusal.text.find("rank 1"), std::string::npos) << refusal.text;
}

/// A transport of a host's own, with one number too often.
class AlwaysRank0 final : public Communicator {
 public:
  explicit AlwaysRank0(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t size() const override { return inner_->size(); }
  [[nodiscard]] std::string name() const override { return inner_->name(); }
  void announce(std::string_view purpose) override { inner_->announce(purpose); }
  std::unique_ptr<Request> all_gather(at::Tensor output, at::Tensor input) override {
    return inner_->all_gather(output, input);
  }
  std::unique_ptr<Request> reduce_scatter(at::Tensor output, at::Tensor input, double divisor) override {
    return inner_->reduce_scatter(output, input, divisor);
  }
  std::unique_ptr<Request> all_reduce(at::Tensor tensor, double divisor) override {
    return inner_->all_reduce(tensor, divisor);
  }
  std::unique_ptr<Request> broadcast(at::Tensor tensor) override { return inner_->broadcast(tensor); }
  std::shared_ptr<Communicator> split(const std::vector<int64_t>& members) override { return inner_->split(members); }

 private:
  std::shared_ptr<Communicator> inner_;
};

RANK_CASE(RanksThatDiffer, two_ranks_with_one_number) {
  auto module = load(context, "ThreeLayers");
  const std::string text = text_of_fault([&] {
    ShardedModule::shard(
        module, std::make_shared<AlwaysRank0>(context.new_communicator()),
        [](const ModuleTree& tree, int64_t world) { return plan_for(tree, units_of({"Layer"}), world); }, nullptr);
  });
  EXPECT_NE(text.find("has rank 0 in the place of rank 1"), std::string::npos) << text;
}

/// Sizes are equal: without a check they would take each other's parameters.
RANK_CASE(RanksThatDiffer, ranks_in_different_units_without_a_check) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}), context.new_communicator(2));
  const std::string own = context.rank() == 0 ? "a" : "b";
  auto unit = module.attr(own).toModule();
  const std::string text = text_of_fault([&] { unit.forward({odd_input(0, 0)}); });
  EXPECT_NE(text.find("unit `" + own + "`"), std::string::npos) << text;
  EXPECT_NE(text.find("rank " + std::to_string(context.rank())), std::string::npos) << text;
  const std::string other = context.rank() == 0 ? "rank 1 was in unit `b`" : "rank 0 was in unit `a`";
  EXPECT_NE(text.find(other), std::string::npos) << text;
}

Sharding with_order_check() {
  Sharding sharding = units_of({"Layer"});
  sharding.order_check = 1;
  return sharding;
}

/// No waiting: each rank hears at once where the others are, on any transport.
RANK_CASE_ON(RanksThatDiffer, ranks_in_different_units, 2, 4) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, with_order_check());
  auto unit = module.attr(context.rank() == 1 ? "b" : "a").toModule();
  const std::string text = text_of_fault([&] { unit.forward({odd_input(0, 0)}); });
  EXPECT_NE(text.find("rank 0 gathers unit `a`, rank 1 gathers unit `b`"), std::string::npos) << text;
}

/// On a mesh: ranks of one row agree, those of a column do not.
RANK_CASE_ON(RanksThatDiffer, replicas_in_different_units, 4) {
  auto module = load(context, "ThreeLayers");
  Sharding sharding = with_order_check();
  sharding.strategy = "hybrid_shard";
  sharding.mesh = {2, 2};
  const auto sharded = shard(context, module, sharding);
  auto unit = module.attr(context.rank() / 2 == 1 ? "b" : "a").toModule();
  const at::Tensor loss = mean_square(unit.forward({odd_input(0, 0)}));
  const std::string text = text_of_fault([&] { loss.backward(); });
  const std::string wanted = "rank " + std::to_string(context.rank() % 2) +
                             " reduces the gradients of unit `a`, rank " + std::to_string(context.rank() % 2 + 2) +
                             " reduces the gradients of unit `b`";
  EXPECT_NE(text.find(wanted), std::string::npos) << text;
}

/// H21: a branch that depends on the rank's data.
RANK_CASE(Behaviour_H21, a_parameter_that_one_rank_does_not_use) {
  auto module = load(context, "late_comer");
  Sharding sharding;
  sharding.order_check = 1;
  const auto sharded = shard(context, module, sharding);
  const at::Tensor loss = module.forward({at::ones({1, 4}), context.rank() == 0}).toTensor();
  const std::string text = text_of_fault([&] { loss.backward(); });
  EXPECT_NE(text.find("`b.weight` has a gradient on rank 0 and none on rank 1"), std::string::npos) << text;
}

RANK_CASE(RanksThatDiffer, the_order_is_compared_in_the_first_steps_only) {
  auto module = load(context, "ThreeLayers");
  const auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, with_order_check(), communicator);
  std::vector<size_t> collectives;
  for (int64_t step = 0; step < 3; ++step) {
    communicator->forget();
    mean_square(module.forward({odd_input(step, context.rank())})).backward();
    collectives.push_back(communicator->records().size());
  }
  // Three units: 3 gathers in forward, 3 in backward and 3 reductions; the root holds no parameter.
  EXPECT_EQ(collectives[1], 9U);
  EXPECT_EQ(collectives[2], 9U);
  EXPECT_EQ(collectives[0], 9U + 6U + 2U * 3U) << "one look before each, two before a reduction";
}

/// load.mode = "broadcast": parameters and buffers of rank 0, whatever the others hold. Replicas, too.
RANK_CASE_ON(Behaviour_F8, rank_0s_values_are_sent, 2, 4) {
  auto module = load(context, "Buffers");
  const auto wanted = named_parameters(load(context, "Buffers"));
  {
    const at::NoGradGuard guard;
    for (const at::Tensor& parameter : module.parameters()) parameter.add_(static_cast<double>(context.rank()));
    for (const at::Tensor& buffer : module.buffers()) buffer.add_(context.rank());
  }
  Sharding sharding;
  sharding.strategy = "hybrid_shard";
  sharding.mesh = {context.world() / 2, 2};
  sharding.load_mode = LoadMode::kBroadcast;
  const auto sharded = shard(context, module, sharding);
  sharded->detach();
  for (const auto& [name, tensor] : named_parameters(module)) EXPECT_TRUE(tensor.equal(wanted.at(name))) << name;
  TensorsByName buffers;
  for (const auto& buffer : module.named_buffers()) buffers[buffer.name] = buffer.value;
  for (const auto& buffer : load(context, "Buffers").named_buffers()) {
    EXPECT_TRUE(buffers.at(buffer.name).equal(buffer.value)) << buffer.name;
  }
}

RANK_CASE_ON(Behaviour_F8, replicas_with_other_weights_are_refused, 4) {
  auto module = load(context, "Buffers");
  const auto [name, tensor] = *named_parameters(module).begin();
  if (context.rank() >= 2) {
    const at::NoGradGuard guard;
    at::Tensor(tensor).add_(1);
  }
  Sharding sharding;
  sharding.strategy = "hybrid_shard";
  sharding.mesh = {2, 2};
  const Refusal refusal = refusal_of([&] { shard(context, module, sharding); });
  EXPECT_EQ(refusal.text.find("rank 2 holds other values than rank 0 in parameter `" + name + "`"), 0U) << refusal.text;
}

RANK_CASE(RanksThatDiffer, buffers_that_cannot_be_sent) {
  auto module = load(context, "Buffers");
  const auto buffer = *module.named_buffers().begin();
  if (context.rank() == 1) at::Tensor(buffer.value).set_data(at::zeros({3}));
  Sharding sharding;
  sharding.load_mode = LoadMode::kBroadcast;
  const Refusal refusal = refusal_of([&] { shard(context, module, sharding); });
  EXPECT_NE(refusal.text.find(", it has `buffer " + buffer.name + " 3 Float`"), std::string::npos) << refusal.text;
}

}  // namespace
}  // namespace fsdp2::testing
