// How gradients become those of the mean over ranks: rows of docs/behaviours.md, sections D, E, F and part of I.
// Numbers come from the unsharded run, from formulas, and from PyTorch's FSDP2 where a comment says so.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "registry/error.hpp"
#include "tests/ranks/harness/refusal.hpp"
#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm", "Block"};
constexpr int64_t kGroups = 4;  // three blocks and the root

Sharding on_mesh(int64_t replicate, int64_t shard, const std::string& strategy = "hybrid_shard") {
  Sharding sharding = by_layer(kModel, strategy);
  sharding.mesh = {replicate, shard};
  return sharding;
}

/// Collectives of the passes since the last call: all-gathers, reduce-scatters, all-reduces.
std::vector<int64_t> counted(RecordingCommunicator& communicator) {
  std::vector<int64_t> counts;
  for (const auto kind : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
    counts.push_back(communicator.count(kind));
  }
  communicator.forget();
  return counts;
}

void backward(torch::jit::Module& module, const RankContext& context, int64_t batch) {
  next_token_loss(module, batch, context.rank()).backward();
}

/// Gradients of the mean over ranks, summed over micro-batches, of the plain model.
TensorsByName accumulated_gradients(const RankContext& context, int64_t batches) {
  auto module = load(context, kModel.file);
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (int64_t rank = 0; rank < context.world(); ++rank) {
      (next_token_loss(module, batch, rank) / static_cast<double>(context.world())).backward();
    }
  }
  TensorsByName gradients;
  for (const auto& [name, tensor] : named_parameters(module)) gradients[name] = tensor.grad();
  return gradients;
}

bool any_gradient(const ShardedModule& sharded) {
  const auto parameters = sharded.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const NamedTensor& p) { return p.tensor.grad().defined(); });
}

struct Run : RecordedModel {
  Run(RankContext& context, const Sharding& sharding) : RecordedModel(context, kModel, sharding) {}
};

// ---- meshes ------------------------------------------------------------------------------------------------------

RANK_CASE_ON(Behaviour_F3, trains_like_unsharded, 4) {
  Recipe recipe;
  recipe.loss = next_token_loss;
  recipe.steps = 3;
  const Reference reference = train_unsharded(load(context, kModel.file), recipe, context.world());
  std::vector<Sharding> shardings{on_mesh(2, 2), on_mesh(2, 2, "hybrid_shard_zero2"), on_mesh(4, 1), on_mesh(1, 4)};
  shardings.push_back(on_mesh(2, 2));
  shardings.back().layout = Layout::kPerParameter;
  for (const Sharding& sharding : shardings) {
    SCOPED_TRACE(sharding.strategy + " " + std::to_string(*sharding.mesh.replicate) + " x " +
                 std::to_string(*sharding.mesh.shard) + " " + std::string(name_of(sharding.layout)));
    expect_trains_like(context, load(context, kModel.file), sharding, recipe, reference);
  }
}

/// Blocks lie inside a row, so their ranks are neighbours among all. On 2 x 2 two ranks are the row: true.
RANK_CASE_ON(Behaviour_F10, blocks_of_a_row, 4, 8) {
  const int64_t row = context.world() / 2;
  Recipe recipe;
  recipe.loss = next_token_loss;
  recipe.steps = 2;
  Sharding sharding = on_mesh(2, row);
  sharding.reshard = int64_t{2};
  Run run(context, sharding);
  const at::Tensor loss = next_token_loss(run.module, 0, context.rank());
  const Statistics statistics = run.sharded->statistics();
  EXPECT_EQ(statistics.unsharded_bytes, row > 2 ? statistics.shard_bytes * row / 2 : 0);
  run.communicator->forget();
  loss.backward();
  int64_t inside = 0;
  for (const CollectiveRecord& record : run.communicator->records()) {
    if (record.kind == Collective::kAllGather) inside += record.ranks == 2 ? 1 : 0;
  }
  EXPECT_EQ(inside, kGroups);
  expect_trains_like_unsharded(context, kModel.file, sharding, recipe);
}

/// A unit's all-reduce runs while the next unit's gradients are computed and reduce-scattered.
RANK_CASE_ON(Behaviour_F2, the_all_reduce_runs_behind_the_next_reduce_scatter, 4) {
  Run run(context, on_mesh(2, 2));
  const at::Tensor loss = next_token_loss(run.module, 0, context.rank());
  run.communicator->forget();
  loss.backward();
  std::vector<CollectiveRecord> sums;
  const auto& records = run.communicator->records();
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].kind != Collective::kAllReduce) continue;
    const auto next = std::find_if(records.begin() + static_cast<int64_t>(i), records.end(),
                                   [](const CollectiveRecord& r) { return r.kind == Collective::kReduceScatter; });
    if (next == records.end()) continue;  // of the last unit
    EXPECT_GT(records[i].ended_before, static_cast<size_t>(next - records.begin())) << records[i].purpose;
    sums.push_back(records[i]);
  }
  EXPECT_EQ(static_cast<int64_t>(sums.size()), kGroups - 1);
}

// PyTorch's FSDP2 with three groups on 2 x 2: 5 all-gathers, 3 reduce-scatters, 3 all-reduces; that is 2G - 1, G, G.
RANK_CASE_ON(Behaviour_F2, a_reduce_scatter_and_an_all_reduce_each, 4) {
  Run run(context, on_mesh(2, 2));
  backward(run.module, context, 0);
  EXPECT_EQ(counted(*run.communicator), (std::vector<int64_t>{2 * kGroups - 1, kGroups, kGroups}));
  const Statistics statistics = run.sharded->statistics();
  EXPECT_EQ(statistics.all_reduces, kGroups);
  EXPECT_EQ(statistics.all_reduce_bytes, shard_bytes(run.sharded->plan()));
}

RANK_CASE_ON(Behaviour_F1, ranks_of_a_row_shard, 4) {
  Run run(context, on_mesh(2, 2));
  const int64_t row_mate = context.rank() ^ 1;
  for (const ShardGeometry& part : run.sharded->geometry()) {
    // Between them the two ranks of a row hold a parameter: sums over rows of what all hold are twice the whole.
    EXPECT_EQ(context.sum(static_cast<double>(part.range.end - part.range.begin)), 2.0 * numel(part.shape)) << row_mate;
    const double own = static_cast<double>(part.range.begin) * (context.rank() % 2 == 0 ? 1 : 0);
    EXPECT_EQ(context.sum(own), 0) << "rank 0 and 2 begin each parameter";
  }
}

RANK_CASE_ON(Behaviour_F9, a_dimension_of_one, 4) {
  {
    Run run(context, on_mesh(4, 1));
    backward(run.module, context, 0);
    EXPECT_EQ(counted(*run.communicator), (std::vector<int64_t>{0, 0, kGroups}));
  }
  Run run(context, on_mesh(1, 4));
  backward(run.module, context, 0);
  EXPECT_EQ(counted(*run.communicator), (std::vector<int64_t>{2 * kGroups - 1, kGroups, 0}));
}

/// Public report: with one rank a shard group, replicas drifted apart.
RANK_CASE(Behaviour_F9, no_averaging_is_lost) {
  for (const MeshOptions mesh : {MeshOptions{2, 1}, MeshOptions{1, 2}}) {
    auto module = load(context, "ones");
    Sharding sharding;
    sharding.strategy = "hybrid_shard";
    sharding.mesh = mesh;
    const auto sharded = shard(context, module, sharding);
    const auto optimizer = make_optimizer(Optimizer::kSgd, tensors_of(*sharded), 0.1);
    module.forward({at::ones({1, 4}) * (context.rank() + 1.0)}).toTensor().sum().backward();
    const at::Tensor weight = sharded->parameters()[0].tensor;
    EXPECT_TRUE(at::equal(weight.grad(), at::full_like(weight, 1.5)));
    optimizer->step();
    EXPECT_TRUE(at::equal(weight.detach(), at::ones_like(weight) - at::full_like(weight, 1.5) * 0.1));
  }
}

RANK_CASE_ON(Behaviour_F4, nothing_is_sent_until_the_last_micro_batch, 4) {
  Run run(context, on_mesh(2, 2));
  const int64_t gathers = 2 * kGroups - 1;
  run.sharded->set_gradient_sync("", true, false);
  for (int64_t batch = 0; batch < 2; ++batch) {
    backward(run.module, context, batch);
    EXPECT_EQ(counted(*run.communicator), (std::vector<int64_t>{gathers, 0, 0}));
    EXPECT_FALSE(any_gradient(*run.sharded));
  }
  run.sharded->set_gradient_sync("", true, true);
  backward(run.module, context, 2);
  EXPECT_EQ(counted(*run.communicator), (std::vector<int64_t>{gathers, kGroups, kGroups}));
  expect_gradients_equal(*run.sharded, accumulated_gradients(context, 3));
}

RANK_CASE_ON(Behaviour_F5, sums_of_a_row_wait_for_the_all_reduce, 4) {
  Run run(context, on_mesh(2, 2));
  const int64_t gathers = 2 * kGroups - 1;
  run.sharded->set_all_reduce("", true, false);
  for (int64_t batch = 0; batch < 2; ++batch) {
    backward(run.module, context, batch);
    EXPECT_EQ(counted(*run.communicator), (std::vector<int64_t>{gathers, kGroups, 0}));
    EXPECT_FALSE(any_gradient(*run.sharded)) << "F6: undefined until the all-reduce";
  }
  const Refusal refusal = refusal_of([&] { run.sharded->set_gradient_divisor("", true, 2); });
  EXPECT_NE(refusal.text.find("wait for their all-reduce"), std::string::npos) << refusal.text;
  run.sharded->set_all_reduce("", true, true);
  backward(run.module, context, 2);
  EXPECT_EQ(counted(*run.communicator), (std::vector<int64_t>{gathers, kGroups, kGroups}));
  expect_gradients_equal(*run.sharded, accumulated_gradients(context, 3));
  run.sharded->set_gradient_divisor("", true, 2);
}

/// Public report, four ranks: L2 1.696078, greatest 0.642618; replicas must not count twice.
RANK_CASE_ON(Behaviour_I11, norms_on_a_mesh, 4) {
  for (const MeshOptions mesh : {MeshOptions{2, 2}, MeshOptions{1, 4}, MeshOptions{4, 1}}) {
    auto module = load(context, "net3");
    Sharding sharding;
    sharding.strategy = "hybrid_shard";
    sharding.classes = {"Linear"};
    sharding.mesh = mesh;
    sharding.layout = Layout::kPerParameter;  // leaves the last rank of four without a row
    const auto sharded = shard(context, module, sharding);
    module.forward({at::ones({2, 4}) * (context.rank() + 1.0)}).toTensor().pow(2).sum().backward();
    EXPECT_NEAR(sharded->gradient_norm(2), 1.696078, 2e-5);
    EXPECT_NEAR(sharded->gradient_norm(1), 8.603796, 2e-5);
    EXPECT_NEAR(sharded->gradient_norm(std::numeric_limits<double>::infinity()), 0.642618, 2e-5);
  }
}

// ---- division ----------------------------------------------------------------------------------------------------

/// Ranks' gradients are 1, 2, 3, 4. Public report: a factor gave other gradients on two dimensions than on one.
RANK_CASE_ON(Behaviour_D4, a_factor_is_the_same_on_every_mesh, 4) {
  for (const MeshOptions mesh : {MeshOptions{1, 4}, MeshOptions{2, 2}, MeshOptions{4, 1}}) {
    for (const std::optional<DType> reduce : {std::optional<DType>(), {DType::kFloat16}, {DType::kBFloat16}}) {
      for (const auto dtype : {at::kFloat, at::kDouble}) {
        for (const auto& [factor, wanted] : {std::pair{0.0, 2.5}, {4.0, 2.5}, {8.0, 1.25}}) {
          auto module = load(context, "ones");
          module.to(dtype);
          Sharding sharding;
          sharding.strategy = "hybrid_shard";
          sharding.mesh = mesh;
          sharding.precision.reduce = reduce;
          if (factor > 0) sharding.divide_factor = factor;
          const auto sharded = shard(context, module, sharding);
          module.forward({at::ones({1, 4}, dtype) * (context.rank() + 1.0)}).toTensor().sum().backward();
          const at::Tensor gradient = sharded->parameters()[0].tensor.grad();
          EXPECT_TRUE(at::equal(gradient, at::full_like(gradient, wanted)))
              << *mesh.replicate << " x " << *mesh.shard << ", factor " << factor << ": " << gradient;
        }
      }
    }
  }
}

RANK_CASE(Behaviour_D3, a_factor_of_one_unit_leaves_the_others) {
  TensorsByName wanted = accumulated_gradients(context, 1);
  Run run(context, by_layer(kModel));
  run.sharded->set_gradient_divisor("", /*recurse=*/false, 2.0 * static_cast<double>(context.world()));
  backward(run.module, context, 0);
  for (const PlannedParameter& parameter : run.sharded->plan().units.back().parameters) {
    wanted[parameter.name] = wanted[parameter.name] / 2;
  }
  expect_gradients_equal(*run.sharded, wanted);
  run.sharded->zero_gradients();
  run.sharded->set_gradient_divisor("", false, 0);
  backward(run.module, context, 0);
  expect_gradients_equal(*run.sharded, accumulated_gradients(context, 1));
  EXPECT_THROW(run.sharded->set_gradient_divisor("", false, -1), Error);
}

RANK_CASE_ON(Behaviour_D2, one_rank_divides_by_the_factor_only, 1) {
  for (const double factor : {0.0, 8.0}) {
    for (const bool forced : {false, true}) {
      auto module = load(context, "ones");
      Sharding sharding;
      sharding.force_collectives = forced;
      if (factor > 0) sharding.divide_factor = factor;
      const auto sharded = shard(context, module, sharding);
      module.forward({at::ones({1, 4}) * 3}).toTensor().sum().backward();
      const at::Tensor gradient = sharded->parameters()[0].tensor.grad();
      EXPECT_TRUE(at::equal(gradient, at::full_like(gradient, factor > 0 ? 3 / factor : 3))) << gradient;
    }
  }
}

/// Sums of 16 bits are taken in 32 and rounded once: eight times 2^14 would overflow in fp16.
RANK_CASE_ON(Behaviour_D6, half_precision_does_not_overflow, 4) {
  for (const MeshOptions mesh : {MeshOptions{1, 4}, MeshOptions{2, 2}, MeshOptions{4, 1}}) {
    auto module = load(context, "ones");
    Sharding sharding;
    sharding.strategy = "hybrid_shard";
    sharding.mesh = mesh;
    sharding.precision.reduce = DType::kFloat16;
    const auto sharded = shard(context, module, sharding);
    module.forward({at::full({1, 4}, 32768.0)}).toTensor().sum().backward();
    const at::Tensor gradient = sharded->parameters()[0].tensor.grad();
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(gradient, at::full_like(gradient, 32768.0))) << gradient;
  }
}

/// Half the bytes; values are those that the dtype has for each rank's gradient and for the mean.
RANK_CASE(Behaviour_F7, reduces_in_the_dtype_asked_for) {
  for (const std::string strategy : {"full_shard", "no_shard"}) {
    auto module = load(context, "ones");
    Sharding sharding;
    sharding.strategy = strategy;
    sharding.precision.reduce = DType::kBFloat16;
    const auto communicator = context.new_communicator();
    const auto sharded = shard(context, module, sharding, communicator);
    const auto gradient_of = [](int64_t rank) { return (at::ones({4}) * (rank + 1.0) / 3 + 0.1).to(at::kBFloat16); };
    communicator->forget();
    module.forward({(at::ones({1, 4}) * (context.rank() + 1.0) / 3 + 0.1)}).toTensor().sum().backward();
    const at::Tensor mean = ((gradient_of(0).to(at::kFloat) + gradient_of(1).to(at::kFloat)) / 2).to(at::kBFloat16);
    const at::Tensor gradient = sharded->parameters()[0].tensor.grad();
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(gradient, mean.to(at::kFloat).expand_as(gradient))) << gradient;
    EXPECT_EQ(communicator->records().back().bytes, 16 * 2) << "16 elements of 2 bytes";
  }
}

// ---- accumulation --------------------------------------------------------------------------------------------------

struct Accumulation {
  std::vector<std::string> off;  // units whose gradients wait until the last micro-batch; "*" is all
  int64_t reductions;            // of three micro-batches
};

// With G groups and B micro-batches: G B with all in sync, G with none, (G - 1) B + 1 with the root out of it and
// G + (G - d)(B - 1) with d blocks out of it.
RANK_CASE(Behaviour_E2, reductions_by_who_waits) {
  const TensorsByName wanted = accumulated_gradients(context, 3);
  for (const auto& [off, reductions] :
       {Accumulation{{}, 12}, {{"*"}, 4}, {{""}, 10}, {{"layers.0", "layers.2"}, 4 + 2 * 2}}) {
    Run run(context, by_layer(kModel));
    const auto set = [&, &off = off](bool on) {
      for (const std::string& path : off) run.sharded->set_gradient_sync(path == "*" ? "" : path, path == "*", on);
    };
    set(false);
    backward(run.module, context, 0);
    backward(run.module, context, 1);
    set(true);
    backward(run.module, context, 2);
    EXPECT_EQ(counted(*run.communicator)[1], reductions);
    expect_gradients_equal(*run.sharded, wanted);
  }
}

RANK_CASE_ON(Behaviour_E7, sync_and_no_sync_in_any_order, 1, 2) {
  const TensorsByName wanted = accumulated_gradients(context, 3);
  for (const std::string order : {"syn", "nys", "sny"}) {  // y and s: in sync
    Run run(context, by_layer(kModel));
    for (int64_t batch = 0; batch < 3; ++batch) {
      run.sharded->set_gradient_sync("", true, order[static_cast<size_t>(batch)] != 'n');
      backward(run.module, context, batch);
    }
    if (order.back() == 'n') {
      EXPECT_TRUE(any_gradient(*run.sharded));
      continue;  // the last one waits for more
    }
    expect_gradients_equal(*run.sharded, wanted);
  }
}

RANK_CASE(Behaviour_E10, zero_gradients_drops_what_waits) {
  for (const bool sums : {false, true}) {
    Sharding sharding = by_layer(kModel);
    if (sums) sharding = on_mesh(2, 1);
    Run run(context, sharding);
    if (sums) {
      run.sharded->set_all_reduce("", true, false);
    } else {
      run.sharded->set_gradient_sync("", true, false);
    }
    backward(run.module, context, 7);
    run.sharded->zero_gradients();
    run.sharded->set_all_reduce("", true, true);
    run.sharded->set_gradient_sync("", true, true);
    backward(run.module, context, 0);
    expect_gradients_equal(*run.sharded, accumulated_gradients(context, 1));
  }
}

// With G groups and three micro-batches of which the last is in sync: 2 G each where all reshard, 2 G - 1 where the
// root is kept after forward, G where all are. What is kept after backward too is gathered once.
RANK_CASE(Behaviour_E5, gathers_by_who_is_kept) {
  struct Kept {
    std::string strategy;
    ReshardAfterForward reshard;
    std::string after_backward;  // "all", "root" or none
    int64_t gathers;
  };
  for (const Kept& kept :
       {Kept{"full_shard", true, "", 2 * kGroups * 3}, Kept{"full_shard", ReshardAuto{}, "", (2 * kGroups - 1) * 3},
        Kept{"shard_grad_op", ReshardAuto{}, "", kGroups * 3}, Kept{"shard_grad_op", ReshardAuto{}, "all", kGroups},
        Kept{"shard_grad_op", ReshardAuto{}, "root", kGroups + (kGroups - 1) * 2}}) {
    SCOPED_TRACE(kept.strategy + ", kept after backward: " + kept.after_backward);
    Sharding sharding = by_layer(kModel, kept.strategy);
    sharding.reshard = kept.reshard;
    Run run(context, sharding);
    if (!kept.after_backward.empty()) {
      run.sharded->set_reshard_after_backward("", /*recurse=*/kept.after_backward == "all", false);
    }
    for (int64_t batch = 0; batch < 3; ++batch) {
      run.sharded->set_gradient_sync("", true, batch == 2);
      backward(run.module, context, batch);
    }
    EXPECT_EQ(counted(*run.communicator)[0], kept.gathers);
    expect_gradients_equal(*run.sharded, accumulated_gradients(context, 3));
  }
}

/// What waits has the dtype of the reductions: 256 + 1 is 256 in bfloat16. Numbers of PyTorch's FSDP2 for bfloat16.
RANK_CASE(Behaviour_E8, dtype_of_what_waits) {
  using Batches = std::vector<std::pair<double, bool>>;  // a gradient, and whether its pass is in sync
  const Batches fits{{256.0, true}, {1.0, false}, {-256.0, true}};
  const Batches rounds{{3.0, true}, {256.0, false}, {1.0, false}, {-256.0, true}};
  for (const bool wide : {false, true}) {
    for (const auto& [batches, wanted] : {std::pair{fits, 1.0}, {rounds, wide ? 4.0 : 3.0}}) {
      auto module = load(context, "ones");
      Sharding sharding;
      sharding.precision.param = DType::kBFloat16;
      if (wide) sharding.precision.reduce = DType::kFloat32;
      const auto communicator = context.new_communicator();
      const auto sharded = shard(context, module, sharding, communicator);
      for (const auto& [gradient, sync] : batches) {
        sharded->set_gradient_sync("", true, sync);
        module.forward({at::full({1, 4}, gradient)}).toTensor().sum().backward();
      }
      const at::Tensor own = sharded->parameters()[0].tensor.grad();
      EXPECT_EQ(own.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::equal(own, at::full_like(own, wanted))) << own;
      EXPECT_EQ(communicator->records().back().bytes, 16 * (wide ? 4 : 2)) << "G2: 16 elements in the reduce dtype";
    }
  }
}

/// Steps of several micro-batches each, 'y' for those in sync, against the plain model (E14).
void expect_accumulates(RankContext& context, const Sharding& sharding, const std::string& order, int64_t steps) {
  SCOPED_TRACE(order);
  auto plain = load(context, kModel.file);
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : plain.parameters()) parameters.push_back(parameter);
  const auto plain_optimizer = make_optimizer(Optimizer::kMomentum, parameters, 0.02);
  Run run(context, sharding);
  const auto optimizer = make_optimizer(Optimizer::kMomentum, tensors_of(*run.sharded), 0.02);
  int64_t batch = 0;
  for (int64_t step = 0; step < steps; ++step) {
    plain_optimizer->zero_grad();
    optimizer->zero_grad();
    for (const char sync : order) {
      for (int64_t rank = 0; rank < context.world(); ++rank) {
        (next_token_loss(plain, batch, rank) / static_cast<double>(context.world())).backward();
      }
      run.sharded->set_gradient_sync("", true, sync == 'y');
      backward(run.module, context, batch);
      ++batch;
    }
    plain_optimizer->step();
    optimizer->step();
  }
  expect_shards_equal(*run.sharded, named_parameters(plain), 1e-5);
}

RANK_CASE(Behaviour_E15, sync_and_no_sync_by_threes) {
  for (const std::string order : {"yyynnnyyy", "nnnyyynnny"}) expect_accumulates(context, by_layer(kModel), order, 1);
}

RANK_CASE_ON(Behaviour_F12, accumulates_on_a_mesh, 4) {
  expect_accumulates(context, on_mesh(2, 2), "nny", 3);
}

/// A unit that the last micro-batch does not use still hands over what waits.
RANK_CASE(Behaviour_E13, used_in_some_micro_batches_only) {
  for (const bool late : {true, false}) {
    auto module = load(context, "late_comer");
    Sharding sharding;
    sharding.modules = {"a", "b"};
    const auto sharded = shard(context, module, sharding);
    const at::Tensor x = at::ones({1, 4}) * (context.rank() + 1.0);
    sharded->set_gradient_sync("", true, false);
    module.forward({x, !late}).toTensor().backward();
    sharded->set_gradient_sync("", true, true);
    module.forward({x, late}).toTensor().backward();
    for (const auto& [name, tensor] : sharded->parameters()) {
      EXPECT_TRUE(at::equal(tensor.grad(), at::full_like(tensor, name == "a.weight" ? 3.0 : 1.5))) << name;
    }
  }
}

/// Computes in bfloat16, sums in float32, both parameters in one unit: one gradient waits, the other one is fresh.
RANK_CASE(Behaviour_E13, in_low_precision) {
  auto module = load(context, "late_comer");
  Sharding sharding;
  sharding.precision.param = DType::kBFloat16;
  sharding.precision.reduce = DType::kFloat32;
  const auto sharded = shard(context, module, sharding);
  const at::Tensor x = at::ones({1, 4}) * (context.rank() + 1.0);
  sharded->set_gradient_sync("", true, false);
  module.forward({x, false}).toTensor().backward();
  EXPECT_FALSE(any_gradient(*sharded));
  sharded->set_gradient_sync("", true, true);
  module.forward({x, true}).toTensor().backward();
  for (const auto& [name, tensor] : sharded->parameters()) {
    EXPECT_EQ(tensor.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(tensor.grad(), at::full_like(tensor, name == "a.weight" ? 3.0 : 1.5))) << name;
  }
}

RANK_CASE(Behaviour_E12, setters_name_what_they_do_not_know) {
  Run run(context, by_layer(kModel));
  try {
    run.sharded->set_gradient_sync("layer.0", true, false);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_EQ(error.details().nearest, "layers.0") << error.what();
  }
}

}  // namespace
}  // namespace fsdp2::testing
