// How many ranks there will be: what adapters make of it where their hosts do.
#include "adapters/rank_counts.hpp"

#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "registry/toml_reader.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::mesh_in;
using test::notes_name;
using test::strategy_of;
using test::text_of;

RankCounts counts(const std::vector<std::string>& pairs) {
  return read_rank_counts(pairs);
}

Translation on(const std::vector<std::string>& pairs, const std::string& dialect, const std::string& text) {
  TranslationContext context;
  context.ranks = counts(pairs);
  return find_translation(dialect)(text, "host", context);
}

std::string fault_on(const std::vector<std::string>& pairs, const std::string& dialect, const std::string& text) {
  return text_of([&] { on(pairs, dialect, text); });
}

TEST(RankCounts, TwoTellTheThird) {
  EXPECT_EQ(counts({"num_processes=8", "num_nodes=2"}).processes_per_node, 4);
  EXPECT_EQ(counts({"num_processes=8", "processes_per_node=2"}).num_nodes, 4);
  EXPECT_EQ(counts({"num_nodes=3", "processes_per_node=2"}).num_processes, 6);
  EXPECT_EQ(counts({"num_nodes=3"}).num_processes, std::nullopt);
  EXPECT_EQ(counts({"num_nodes=3", "num_nodes=4"}).num_nodes, 4);
}

TEST(RankCounts, WrongOnesAreNamed) {
  const auto fault = [](const std::vector<std::string>& pairs) { return text_of([&] { counts(pairs); }); };
  EXPECT_EQ(
      fault({"num_node=2"}),
      "`num_node=2` is none of what can be told: \"num_processes\", \"num_nodes\", \"processes_per_node\"; did you "
      "mean `num_nodes`?");
  for (const char* pair :
       {"num_nodes", "num_nodes=", "num_nodes=0", "num_nodes=-1", "num_nodes=two", "num_nodes=1.5"}) {
    EXPECT_EQ(fault({pair}), "`" + std::string(pair) + "` must be num_nodes=N, with a whole number of 1 or more");
  }
  EXPECT_EQ(fault({"num_processes=8", "num_nodes=3"}), "`num_processes=8` does not divide among num_nodes=3");
  EXPECT_EQ(fault({"num_processes=8", "processes_per_node=3"}),
            "`num_processes=8` does not divide by processes_per_node=3");
  EXPECT_EQ(fault({"num_processes=8", "processes_per_node=2", "num_nodes=2"}),
            "`num_processes=8` is not num_nodes=2 x processes_per_node=2");
  EXPECT_NE(fault({"num_nodes=9223372036854775807", "processes_per_node=2"}).find("more ranks than can be counted"),
            std::string::npos);
}

TEST(RankCounts, Accelerate) {
  const std::string sized =
      "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
      "parallelism_config: {parallelism_config_dp_replicate_size: 2, parallelism_config_dp_shard_size: 4}\n";
  EXPECT_EQ(mesh_in(on({"num_processes=8"}, "accelerate", sized)), "2 x 4");
  EXPECT_EQ(fault_on({"num_processes=4"}, "accelerate", sized),
            "override `--context num_processes=4`: `num_processes=4` is not `parallelism_config_dp_replicate_size` x "
            "`parallelism_config_dp_shard_size`, 2 x 4");
  const std::string hybrid =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
      "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n";
  EXPECT_EQ(mesh_in(on({}, "accelerate", hybrid)), "1 x -1");
  EXPECT_EQ(mesh_in(on({"num_nodes=2"}, "accelerate", hybrid)), "2 x -1");
  TranslationContext context;
  context.ranks = counts({"num_nodes=2"});
  const std::vector<HostKey> keys{host_key_of("sharding_strategy=HYBRID_SHARD"),
                                  host_key_of("auto_wrap_policy=size_based_wrap"), host_key_of("min_num_params=5")};
  EXPECT_EQ(mesh_in(translate_accelerate_keys(keys, "keys", {})), "- x -");
  EXPECT_EQ(mesh_in(translate_accelerate_keys(keys, "keys", context)), "2 x -1");
}

TEST(RankCounts, Transformers) {
  const std::string hybrid = R"({"version": 1, "reshard_after_forward": "HYBRID_SHARD"})";
  EXPECT_EQ(mesh_in(on({}, "transformers", hybrid)), "- x -");
  EXPECT_EQ(mesh_in(on({"num_nodes=2"}, "transformers", hybrid)), "2 x -1");
}

TEST(RankCounts, TorchFsdp1) {
  const std::string hybrid = R"({"sharding_strategy": "HYBRID_SHARD", "auto_wrap_policy": ["Block"]})";
  EXPECT_EQ(mesh_in(on({}, "torch_fsdp1", hybrid)), "- x -");
  EXPECT_EQ(mesh_in(on({"num_nodes=2"}, "torch_fsdp1", hybrid)), "2 x -1");
  const Translation alone = on({"num_processes=1"}, "torch_fsdp1", "{}");
  EXPECT_EQ(strategy_of(alone), "no_shard false");
  EXPECT_TRUE(notes_name(alone, "on one rank PyTorch runs `sharding_strategy` FULL_SHARD as NO_SHARD"));
  EXPECT_EQ(strategy_of(on({"num_processes=2"}, "torch_fsdp1", "{}")), "full_shard true");
}

TEST(RankCounts, Torchtitan) {
  const auto degrees = [](const std::string& replicate, const std::string& shard) {
    return "[parallelism]\ndata_parallel_replicate_degree = " + replicate + "\ndata_parallel_shard_degree = " + shard;
  };
  EXPECT_EQ(strategy_of(on({"num_processes=8"}, "torchtitan", degrees("2", "4"))), "hybrid_shard auto");
  EXPECT_EQ(strategy_of(on({"num_processes=8"}, "torchtitan", degrees("2", "-1"))), "hybrid_shard auto");
  EXPECT_EQ(strategy_of(on({"num_processes=2"}, "torchtitan", degrees("2", "-1"))), "no_shard false");
  EXPECT_EQ(strategy_of(on({"num_processes=1"}, "torchtitan", "")), "no_shard false");
  EXPECT_EQ(strategy_of(on({}, "torchtitan", degrees("2", "-1"))), "hybrid_shard auto");
  const std::string must = " ranks: `data_parallel_replicate_degree` x `data_parallel_shard_degree` must be as many";
  EXPECT_EQ(fault_on({"num_processes=6"}, "torchtitan", degrees("2", "4")),
            "host:3:30: `parallelism.data_parallel_shard_degree = 4` does not fit 6" + must);
  EXPECT_EQ(fault_on({"num_processes=7"}, "torchtitan", degrees("2", "-1")),
            "host:2:34: `parallelism.data_parallel_replicate_degree = 2` does not fit 7" + must);
  EXPECT_EQ(fault_on({"num_processes=4"}, "torchtitan", degrees("9223372036854775807", "4")),
            "host:3:30: `parallelism.data_parallel_shard_degree = 4` does not fit 4" + must);
  EXPECT_EQ(mesh_in(on({"num_processes=4"}, "torchtitan", "[training]\ndata_parallel_type = \"ddp\"")), "-1 x 1");
  EXPECT_NE(fault_on({"num_processes=4"}, "torchtitan", "[training]\ndata_parallel_degree = 3").find("does not fit 4"),
            std::string::npos);
}

TEST(RankCounts, Lightning) {
  const std::string parallel =
      "trainer:\n  strategy:\n    class_path: lightning.pytorch.strategies.ModelParallelStrategy\n";
  // `tensor_parallel_size: auto`, the default, is the devices of a node; `data_parallel_size: auto` the nodes.
  EXPECT_EQ(mesh_in(on({"num_nodes=4", "processes_per_node=1"}, "lightning", parallel)), "1 x 4");
  EXPECT_NE(fault_on({"num_nodes=4"}, "lightning", parallel).find("an unknown number"), std::string::npos);
  EXPECT_NE(fault_on({"num_processes=8", "num_nodes=4"}, "lightning", parallel).find("the devices of a node, 2:"),
            std::string::npos);
  const std::string hybrid =
      "trainer:\n  num_nodes: 3\n  strategy:\n    class_path: lightning.pytorch.strategies.FSDPStrategy\n"
      "    init_args:\n      sharding_strategy: HYBRID_SHARD\n      auto_wrap_policy: [nets.Block]\n";
  const Translation told = on({"num_nodes=2"}, "lightning", hybrid);
  EXPECT_EQ(mesh_in(told), "2 x -1");
  EXPECT_TRUE(notes_name(told, "host:2:14: `num_nodes: 3` gives way to `--context num_nodes=2`"));
  EXPECT_FALSE(notes_name(on({"num_nodes=3"}, "lightning", hybrid), "gives way"));
}

TEST(RankCounts, AMeshThatDoesNotFitIsAnError) {
  const auto check = [](const std::string& toml, const std::vector<std::string>& pairs) {
    check_ranks(load_config_text("[fsdp]\n" + toml, "t.toml"), counts(pairs));
  };
  check("mesh.shard = 4", {"num_processes=8"});
  check("mesh.shard = 3", {"num_nodes=2"});  // unknown
  check("strategy = \"hybrid_shard\"", {"num_processes=8"});
  check("reshard_after_forward = 4", {"num_processes=8"});
  EXPECT_EQ(text_of([&] { check("mesh.shard = 3", {"num_processes=8"}); }),
            "t.toml:2:14: `mesh.shard = 3` does not divide the 8 ranks there are");
  EXPECT_EQ(
      text_of([&] { check("reshard_after_forward = 3", {"num_processes=8"}); }),
      "t.toml:2:25: reshard_after_forward = 3, which does not divide the 8 ranks that shard a parameter; 1, 2, 4 or "
      "8 would");
  const Translation hpz = on({}, "deepspeed", R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}})");
  EXPECT_EQ(
      text_of([&] { check_ranks(resolve({}, hpz.given), counts({"num_processes=6"})); }),
      "host:1:63: `zero_optimization.zero_hpz_partition_size` is reshard_after_forward = 4, which does not divide "
      "the 6 ranks that shard a parameter; 1, 2, 3 or 6 would");
}

}  // namespace
}  // namespace fsdp2
