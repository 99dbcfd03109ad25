// Ranks that talk over MPI, where this program was built with it.
#pragma once
#include <memory>

#include "samples/host_trainer/rank_group.hpp"

namespace trainer {

/// The ranks of MPI_COMM_WORLD; initialises MPI. Throws where this build has no MPI, or the process was not started by
/// mpirun though `environment` names several ranks.
std::unique_ptr<RankGroup> meet_by_mpi(const RankEnvironment& environment);

}  // namespace trainer
