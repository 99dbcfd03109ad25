// Who this process is among the ranks, and where they meet.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trainer {

struct RankEnvironment {
  int rank = 0;
  int world = 1;
  int local_rank = 0;   // on this machine
  int local_world = 1;  // on this machine
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  int listen_socket = -1;      // rank 0 of a launcher: bound already, so that nobody else can take the port
  bool store_is_kept = false;  // the launcher's agent keeps the store: every rank is a client
  std::string restart;         // the number of the attempt: keys of an earlier one may be left in the store
};

/// What torchrun, mpirun or srun say in the environment (fsdp2/launch_environment.hpp); nothing where none of them
/// started this process. Throws for variables that make no sense.
std::optional<RankEnvironment> launched_rank();

}  // namespace trainer
