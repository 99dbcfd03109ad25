// Who this process is among the ranks, and where they meet, as its launcher says it in environment variables. The
// plugin reads them here where it makes a group; a host that makes its own can do the same. C++17 and later, free of
// LibTorch.
//
//   launcher           rank, number of ranks                          the same on this machine
//   torchrun           RANK, WORLD_SIZE (and TORCHELASTIC_RUN_ID)     LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI           OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE     OMPI_COMM_WORLD_LOCAL_RANK, ..._LOCAL_SIZE
//   MPICH, Intel MPI   PMI_RANK, PMI_SIZE                             MPI_LOCALRANKID, MPI_LOCALNRANKS
//   Slurm's srun       SLURM_PROCID, SLURM_STEP_NUM_TASKS or _NTASKS  SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE
//
// - A launcher inside another one counts: torchrun before MPI, MPI before Slurm. A batch script of Slurm is no rank.
// - RANK and WORLD_SIZE without torchrun are set by hand. Alone they are enough; beside MPI's or Slurm's they must be
//   equal. So must be Open MPI's and MPICH's.
// - LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are taken where they are set, whoever launched.
// - The address, else: 127.0.0.1 where all ranks are on one machine; the first host of SLURM_STEP_NODELIST,
//   SLURM_NODELIST or SLURM_JOB_NODELIST, for MPI of the last one.
// - The port, else: 20000 to 29999 by the job's id (SLURM_JOB_ID with SLURM_STEP_ID, MPI's PMIX_NAMESPACE), or 29500
//   where there is none; RANK and WORLD_SIZE set by hand want it set. A world of one needs neither.
#ifndef FSDP2_LAUNCH_ENVIRONMENT_HPP
#define FSDP2_LAUNCH_ENVIRONMENT_HPP

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

namespace fsdp2 {
inline namespace v0_1 {

struct LaunchEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;                   // on this machine
  std::optional<int> local_world_size;  // on this machine, where the launcher says
  std::string master_address;           // empty in a world of one
  int master_port = 0;
  bool agent_keeps_store = false;  // torchrun's agent keeps the store at that address: every rank is a client
  int restart = 0;                 // torchrun's attempt: keys of an earlier one may be left in its store
};

/// The value of an environment variable, or nothing.
using EnvironmentVariables = std::function<std::optional<std::string>(const char* name)>;

inline std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

namespace detail {

struct LauncherVariables {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  // null: Slurm has one a machine, not a number
};

class LaunchReader {
 public:
  explicit LaunchReader(const EnvironmentVariables& variables) : variables_(variables) {}

  [[nodiscard]] std::optional<LaunchEnvironment> read() const {
    const auto given = world_of(kGiven);
    const bool torchrun = given && text("TORCHELASTIC_RUN_ID");
    const auto found = torchrun ? std::nullopt : launcher();
    if (!given && !found) return std::nullopt;
    if (given && found) require_same(*given, *found);
    const World world = given ? *given : *found;

    LaunchEnvironment environment;
    environment.rank = world.rank;
    environment.world_size = world.size;
    environment.local_rank = local(kGiven.local_rank, found ? found->names.local_rank : nullptr, 0).value_or(0);
    environment.local_world_size = local(kGiven.local_size, found ? found->names.local_size : nullptr, 1);
    if (!environment.local_world_size && found && is_slurm(*found)) {
      environment.local_world_size = tasks_on_this_machine();
    }
    environment.agent_keeps_store = text("TORCHELASTIC_USE_AGENT_STORE") == "True";  // torchrun's own comparison
    environment.restart = number("TORCHELASTIC_RESTART_COUNT", 0, kMost).value_or(0);
    if (world.size > 1) {
      environment.master_address = address(found, environment);
      environment.master_port = port(found);
    }
    return environment;
  }

 private:
  struct World {
    LauncherVariables names;
    int rank;
    int size;
  };

  static constexpr int kMost = 1 << 20;
  static constexpr LauncherVariables kGiven{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  static constexpr LauncherVariables kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  static constexpr LauncherVariables kMpich{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  static constexpr const char* kSlurmRank = "SLURM_PROCID";

  [[noreturn]] static void fail(const std::string& what) { throw std::invalid_argument(what); }

  /// An empty one counts as not set.
  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    auto value = variables_(name);
    return value && !value->empty() ? value : std::nullopt;
  }

  static int number(const std::string& name, const std::string& digits, int least, int most) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most) {
      fail("the environment variable " + name + " is \"" + digits + "\": expected a whole number from " +
           std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
  }

  [[nodiscard]] std::optional<int> number(const char* name, int least, int most) const {
    const auto digits = text(name);
    return digits ? std::optional<int>(number(name, *digits, least, most)) : std::nullopt;
  }

  [[nodiscard]] std::optional<World> world_of(const LauncherVariables& names) const {
    const auto rank = text(names.rank);
    const auto size = text(names.size);
    if (!rank && !size) return std::nullopt;
    if (!rank || !size) {
      fail(std::string("the environment variable ") + (rank ? names.rank : names.size) + " is set, but " +
           (rank ? names.size : names.rank) + " is not: a launcher sets both");
    }
    const int ranks = number(names.size, *size, 1, kMost);
    return World{names, number(names.rank, *rank, 0, ranks - 1), ranks};
  }

  [[nodiscard]] std::optional<World> launcher() const {
    const auto open_mpi = world_of(kOpenMpi);
    const auto mpich = world_of(kMpich);
    if (open_mpi && mpich) require_same(*open_mpi, *mpich);
    if (open_mpi) return open_mpi;
    const auto step = slurm();
    if (mpich && step && mpich->rank == step->rank && mpich->size == step->size) return step;  // srun --mpi=pmi2
    return mpich ? mpich : step;
  }

  [[nodiscard]] std::optional<World> slurm() const {
    const bool batch_script = text("ENVIRONMENT") == "BATCH" && !text("SLURM_STEP_ID");
    if (!text(kSlurmRank) || batch_script) return std::nullopt;
    const char* size = text("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    return world_of({kSlurmRank, size, "SLURM_LOCALID", nullptr});
  }

  static bool is_slurm(const World& world) { return std::string(world.names.rank) == kSlurmRank; }

  static void require_same(const World& one, const World& other) {
    const auto compare = [](const char* name, int value, const char* other_name, int other_value) {
      if (value == other_value) return;
      fail(std::string("the environment variable ") + name + " is " + std::to_string(value) + ", but " + other_name +
           " is " + std::to_string(other_value) + ": unset those of the launcher that did not start this process");
    };
    compare(one.names.size, one.size, other.names.size, other.size);
    compare(one.names.rank, one.rank, other.names.rank, other.rank);
  }

  [[nodiscard]] std::optional<int> local(const char* given, const char* launchers, int least) const {
    if (auto value = number(given, least, kMost)) return value;
    return launchers != nullptr ? number(launchers, least, kMost) : std::nullopt;
  }

  /// Of "2(x3),1": two on each of three machines, one on the fourth. SLURM_NODEID says which one this is.
  [[nodiscard]] std::optional<int> tasks_on_this_machine() const {
    const char* name = text("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
    const auto list = text(name);
    const auto machine = number("SLURM_NODEID", 0, kMost);
    if (!list || !machine) return std::nullopt;
    int machines = 0;
    for (size_t begin = 0; begin <= list->size();) {
      const size_t end = std::min(list->find(',', begin), list->size());
      const std::string part = list->substr(begin, end - begin);
      const size_t times = part.find("(x");
      machines += times == std::string::npos
                      ? 1
                      : number(name, part.substr(times + 2, part.find(')', times) - times - 2), 1, kMost);
      if (*machine < machines) return number(name, part.substr(0, times), 1, kMost);
      begin = end + 1;
    }
    return std::nullopt;
  }

  struct Hosts {
    std::string first;
    bool more = false;
  };

  /// Of Slurm's short form: node03, and more, of "node[03-07,9],login1".
  static Hosts hosts(const char* name, const std::string& list) {
    Hosts hosts;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] == ',') return {hosts.first, true};
      if (list[i] != '[') {
        hosts.first += list[i];
        continue;
      }
      const size_t end = list.find(']', i);
      if (end == std::string::npos) {
        fail(std::string("the environment variable ") + name + " is \"" + list + "\": expected a list of hosts");
      }
      const std::string range = list.substr(i + 1, end - i - 1);
      const size_t first_end = range.find_first_of(",-");
      hosts.first += range.substr(0, first_end);
      hosts.more = hosts.more || first_end != std::string::npos;
      i = end;
    }
    return hosts;
  }

  [[nodiscard]] std::string address(const std::optional<World>& found, const LaunchEnvironment& environment) const {
    constexpr const char* kThisMachine = "127.0.0.1";
    if (auto given = text("MASTER_ADDR")) return *given;
    if (environment.local_world_size.value_or(1) == environment.world_size) return kThisMachine;
    if (found) {
      // The machines of a step that MPI made for itself may lack the first one.
      for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
        if (!is_slurm(*found) && std::string(name) != "SLURM_JOB_NODELIST") continue;
        const auto list = text(name);
        if (!list) continue;
        const Hosts machines = hosts(name, *list);
        return machines.more ? machines.first : kThisMachine;
      }
    }
    fail("the environment variable MASTER_ADDR is not set: give every rank the address of rank 0's machine");
  }

  [[nodiscard]] int port(const std::optional<World>& found) const {
    constexpr int kMostPort = 65535;
    constexpr int kFirst = 20000;  // below those that systems give to outgoing connections
    constexpr int kCount = 10000;
    constexpr int kWithoutJob = 29500;  // torchrun's own
    if (auto given = number("MASTER_PORT", 1, kMostPort)) return *given;
    if (!found)
      fail("the environment variable MASTER_PORT is not set: give every rank a free port of rank 0's machine");
    std::string job = text(is_slurm(*found) ? "SLURM_JOB_ID" : "PMIX_NAMESPACE").value_or("");
    if (job.empty()) return kWithoutJob;
    if (is_slurm(*found)) job += '.' + text("SLURM_STEP_ID").value_or("");
    uint32_t hash = 2166136261;  // FNV-1a: the same in every process, whatever it was built with
    for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    return kFirst + static_cast<int>(hash % kCount);
  }

  const EnvironmentVariables& variables_;
};

}  // namespace detail

/// Nothing where no launcher's variables are set. Throws std::invalid_argument that names the variables which are
/// missing, wrong or contradict one another.
inline std::optional<LaunchEnvironment> launch_environment(
    const EnvironmentVariables& variables = process_environment) {
  return detail::LaunchReader(variables).read();
}

}  // namespace v0_1
}  // namespace fsdp2

#endif  // FSDP2_LAUNCH_ENVIRONMENT_HPP
