// In the place of mpi_group.cpp where no MPI was found.
#include <stdexcept>

#include "samples/host_trainer/mpi_group.hpp"

namespace trainer {

std::unique_ptr<RankGroup> meet_by_mpi(const RankEnvironment& /*environment*/) {
  throw std::runtime_error("--backend mpi: this build has no MPI; install libopenmpi-dev and build again.");
}

}  // namespace trainer
