// Who a process is, from the variables of each launcher; none of them is read from this process.
#include <gtest/gtest.h>

#include <fsdp2/launch_environment.hpp>
#include <map>
#include <set>
#include <string>

namespace fsdp2 {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<LaunchEnvironment> read(const Variables& variables) {
  return launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

/// "rank 1 of 2, local 1 of 2, 127.0.0.1:29500"
std::string summary(const Variables& variables) {
  const auto e = read(variables);
  if (!e) return "no launcher";
  std::string text = "rank " + std::to_string(e->rank) + " of " + std::to_string(e->world_size) + ", local " +
                     std::to_string(e->local_rank) + " of " + std::to_string(e->local_world_size.value_or(1));
  if (e->world_size > 1) text += ", " + e->master_address + ":" + std::to_string(e->master_port);
  return text;
}

std::string fault(const Variables& variables) {
  try {
    return "no error: " + summary(variables);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kByHand{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node01"}, {"MASTER_PORT", "29400"}};
const Variables kTorchrun = with(kByHand, {{"LOCAL_RANK", "1"},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"TORCHELASTIC_RUN_ID", "none"},
                                           {"TORCHELASTIC_RESTART_COUNT", "3"},
                                           {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kMpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "7"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_JOB_ID", "812"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "node[03-07,9],login1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                       {"MASTER_PORT", "29400"}};

TEST(LaunchEnvironment, NoVariablesNoLauncher) {
  EXPECT_EQ(summary({}), "no launcher");
  EXPECT_EQ(summary({{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", "node01"}, {"SLURM_NTASKS", "4"}}),
            "no launcher");
}

TEST(LaunchEnvironment, EachLauncher) {
  EXPECT_EQ(summary(kByHand), "rank 1 of 4, local 0 of 1, node01:29400");
  EXPECT_EQ(summary(kTorchrun), "rank 1 of 4, local 1 of 2, node01:29400");
  EXPECT_EQ(summary(kOpenMpi), "rank 1 of 2, local 1 of 2, 127.0.0.1:29500");
  EXPECT_EQ(summary(kMpich), "rank 1 of 2, local 1 of 2, 127.0.0.1:29500");
  EXPECT_EQ(summary(kSlurm), "rank 3 of 7, local 1 of 2, node03:29400");
}

TEST(LaunchEnvironment, TorchrunsStoreAndAttempt) {
  EXPECT_TRUE(read(kTorchrun)->agent_keeps_store);
  EXPECT_EQ(read(kTorchrun)->restart, 3);
  EXPECT_FALSE(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->agent_keeps_store);
  EXPECT_FALSE(read(kByHand)->agent_keeps_store);
  EXPECT_EQ(read(kByHand)->restart, 0);
}

TEST(LaunchEnvironment, AWorldOfOneNeedsNoAddress) {
  EXPECT_EQ(summary({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "rank 0 of 1, local 0 of 1");
  EXPECT_EQ(summary({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}), "rank 0 of 1, local 0 of 1");
}

TEST(LaunchEnvironment, AddressAndPortThatAreSetAreTaken) {
  const Variables place{{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "1234"}};
  for (const Variables& launcher : {kOpenMpi, kMpich, kSlurm, kTorchrun}) {
    EXPECT_NE(summary(with(launcher, place)).find(", 10.0.0.7:1234"), std::string::npos);
  }
}

TEST(LaunchEnvironment, FirstHostOfSlurm) {
  const auto address = [](const Variables& more) {
    Variables variables = with(kSlurm, more);
    variables["SLURM_STEP_TASKS_PER_NODE"] = "";  // it does not say that one machine has all
    return read(variables)->master_address;
  };
  const auto of_step = [&](const char* list) { return address({{"SLURM_STEP_NODELIST", list}}); };
  EXPECT_EQ(of_step("node[03-07,9]"), "node03");
  EXPECT_EQ(of_step("a1,a2"), "a1");
  EXPECT_EQ(of_step("a[9,1]"), "a9");
  EXPECT_EQ(of_step("rack[0-1]node[001-016].lan,x"), "rack0node001.lan");
  EXPECT_EQ(of_step("gpu-a-7,gpu-a-8"), "gpu-a-7");
  for (const char* one : {"node03", "gpu-a-7", "node[3]"}) EXPECT_EQ(of_step(one), "127.0.0.1") << one;
  EXPECT_EQ(address({{"SLURM_STEP_NODELIST", ""}, {"SLURM_NODELIST", "b[1-2]"}, {"SLURM_JOB_NODELIST", "c[1-2]"}}),
            "b1");
  EXPECT_EQ(address({{"SLURM_STEP_NODELIST", ""}, {"SLURM_JOB_NODELIST", "c[1-2]"}}), "c1");
}

TEST(LaunchEnvironment, TasksOfEachMachineOfSlurm) {
  const auto local_size = [](const char* tasks, const char* machine) {
    return read(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", tasks}, {"SLURM_NODEID", machine}}))
        ->local_world_size.value_or(1);
  };
  EXPECT_EQ(local_size("2(x3),1", "0"), 2);
  EXPECT_EQ(local_size("2(x3),1", "2"), 2);
  EXPECT_EQ(local_size("2(x3),1", "3"), 1);
  EXPECT_EQ(local_size("1,4(x2)", "1"), 4);
  EXPECT_EQ(local_size("7", "0"), 7);
  EXPECT_EQ(local_size("7", "1"), 1);  // a list that does not fit says nothing
}

TEST(LaunchEnvironment, PortsOfJobs) {
  const auto port = [](Variables variables, const Variables& more) {
    variables.erase("MASTER_PORT");
    return read(with(variables, more))->master_port;
  };
  std::set<int> ports;
  for (int job = 1000; job < 1020; ++job) {
    const Variables id{{"SLURM_JOB_ID", std::to_string(job)}};
    const int slurm = port(kSlurm, id);
    EXPECT_EQ(slurm, port(kSlurm, with(id, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})));  // of all ranks
    EXPECT_GE(slurm, 20000);
    EXPECT_LT(slurm, 30000);
    ports.insert(slurm);
    ports.insert(port(kSlurm, with(id, {{"SLURM_STEP_ID", "1"}})));
    ports.insert(port(kOpenMpi, {{"PMIX_NAMESPACE", std::to_string(job)}}));
  }
  EXPECT_GT(ports.size(), 55U);
}

TEST(LaunchEnvironment, LaunchersInsideOneAnother) {
  // srun starts torchrun, one a machine; Open MPI starts its daemons by srun.
  EXPECT_EQ(summary(with(kTorchrun, kSlurm)), "rank 1 of 4, local 1 of 2, node01:29400");
  EXPECT_EQ(summary(with(kTorchrun, kOpenMpi)), "rank 1 of 4, local 1 of 2, node01:29400");
  Variables mpi =
      with(with(kSlurm, kOpenMpi), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"SLURM_JOB_NODELIST", "node[02-07]"}});
  EXPECT_EQ(summary(mpi), "rank 1 of 2, local 1 of 1, node02:29400");
  // srun with MPICH's protocol: the step says more.
  EXPECT_EQ(summary(with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "7"}})), "rank 3 of 7, local 1 of 2, node03:29400");
  // A step of fewer tasks than the job has.
  EXPECT_EQ(summary(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "4"}})), "rank 3 of 4, local 1 of 2, node03:29400");
}

TEST(LaunchEnvironment, ABatchScriptOfSlurmIsNoRank) {
  Variables script = with(kSlurm, {{"SLURM_PROCID", "0"}, {"ENVIRONMENT", "BATCH"}});
  EXPECT_EQ(summary(script), "rank 0 of 7, local 1 of 2, node03:29400");  // a step that the script started
  script.erase("SLURM_STEP_ID");
  EXPECT_EQ(summary(script), "no launcher");
}

TEST(LaunchEnvironment, HalfOfAPairIsNamed) {
  for (const auto& [rank, size] : {std::pair("RANK", "WORLD_SIZE"), std::pair("PMI_RANK", "PMI_SIZE"),
                                   std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")}) {
    const auto text = [](const std::string& set, const std::string& missing) {
      return "the environment variable " + set + " is set, but " + missing + " is not: a launcher sets both";
    };
    EXPECT_EQ(fault({{rank, "0"}}), text(rank, size));
    EXPECT_EQ(fault({{size, "2"}, {rank, ""}}), text(size, rank));
  }
  EXPECT_EQ(fault({{"SLURM_PROCID", "0"}}),
            "the environment variable SLURM_PROCID is set, but SLURM_NTASKS is not: a launcher sets both");
  EXPECT_EQ(fault(with(kOpenMpi, {{"RANK", "1"}})),
            "the environment variable RANK is set, but WORLD_SIZE is not: a launcher sets both");
}

TEST(LaunchEnvironment, WrongValuesAreQuoted) {
  const auto with_one = [](const Variables& launcher, const char* name, const char* value) {
    return fault(with(launcher, {{name, value}}));
  };
  const auto text = [](const char* name, const char* value, const char* range) {
    return std::string("the environment variable ") + name + " is \"" + value + "\": expected a whole number from " +
           range;
  };
  EXPECT_EQ(with_one(kByHand, "WORLD_SIZE", "4x"), text("WORLD_SIZE", "4x", "1 to 1048576"));
  EXPECT_EQ(with_one(kByHand, "WORLD_SIZE", "0"), text("WORLD_SIZE", "0", "1 to 1048576"));
  EXPECT_EQ(with_one(kByHand, "RANK", "4"), text("RANK", "4", "0 to 3"));
  EXPECT_EQ(with_one(kByHand, "RANK", "-1"), text("RANK", "-1", "0 to 3"));
  EXPECT_EQ(with_one(kByHand, "MASTER_PORT", "70000"), text("MASTER_PORT", "70000", "1 to 65535"));
  EXPECT_EQ(with_one(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "one"),
            text("TORCHELASTIC_RESTART_COUNT", "one", "0 to 1048576"));
  EXPECT_EQ(with_one(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK", "a"),
            text("OMPI_COMM_WORLD_LOCAL_RANK", "a", "0 to 1048576"));
  EXPECT_EQ(with_one(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "1,two"),
            text("SLURM_STEP_TASKS_PER_NODE", "two", "1 to 1048576"));
  EXPECT_EQ(with_one(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", ""}}), "SLURM_STEP_NODELIST", "node[03"),
            "the environment variable SLURM_STEP_NODELIST is \"node[03\": expected a list of hosts");
}

TEST(LaunchEnvironment, ContradictionsNameBothVariables) {
  const auto text = [](const std::string& one, const std::string& other) {
    return "the environment variable " + one + ", but " + other +
           ": unset those of the launcher that did not start this process";
  };
  const Variables zero_of_two{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  EXPECT_EQ(fault(with(kOpenMpi, zero_of_two)), text("RANK is 0", "OMPI_COMM_WORLD_RANK is 1"));
  EXPECT_EQ(fault(with(kOpenMpi, kByHand)), text("WORLD_SIZE is 4", "OMPI_COMM_WORLD_SIZE is 2"));
  EXPECT_EQ(fault(with(kMpich, zero_of_two)), text("RANK is 0", "PMI_RANK is 1"));
  EXPECT_EQ(fault(with(kSlurm, zero_of_two)), text("WORLD_SIZE is 2", "SLURM_NTASKS is 7"));
  EXPECT_EQ(fault(with(kOpenMpi, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})),
            text("OMPI_COMM_WORLD_RANK is 1", "PMI_RANK is 0"));
  EXPECT_EQ(summary(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})),
            "rank 1 of 2, local 1 of 2, 127.0.0.1:29500");
}

TEST(LaunchEnvironment, AMissingPlaceIsNamed) {
  Variables variables = kByHand;
  variables.erase("MASTER_PORT");
  EXPECT_EQ(fault(variables),
            "the environment variable MASTER_PORT is not set: give every rank a free port of rank 0's machine");
  for (Variables launcher : {kByHand, with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
                             Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}}) {
    launcher.erase("MASTER_ADDR");
    EXPECT_EQ(fault(launcher),
              "the environment variable MASTER_ADDR is not set: give every rank the address of rank 0's machine");
  }
}

}  // namespace
}  // namespace fsdp2
