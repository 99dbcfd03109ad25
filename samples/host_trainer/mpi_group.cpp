#include "samples/host_trainer/mpi_group.hpp"

#include <fsdp2/mpi.h>

#include <stdexcept>
#include <string>

namespace trainer {
namespace {

/// MPI from here to the end of a run that went well. A rank that fails leaves without a word to MPI, so that mpirun
/// ends the others.
class MpiGroup final : public RankGroup {
 public:
  explicit MpiGroup(const RankEnvironment& environment) : RankGroup(environment) {
    int given = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &environment_.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &environment_.world);
    if (environment_.world != environment.world)
      throw std::runtime_error("--backend mpi: MPI sees " + std::to_string(environment_.world) +
                               " ranks, the launcher " + std::to_string(environment.world) +
                               "; start fsdp2-train by mpirun.");
    MPI_Comm neighbours = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours);
    MPI_Comm_size(neighbours, &environment_.local_world);
    MPI_Comm_rank(neighbours, &environment_.local_rank);
    MPI_Comm_free(&neighbours);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    communicator_ = std::make_unique<fsdp2::MpiCommunicator>(MPI_COMM_WORLD);
  }
  ~MpiGroup() override {
    communicator_.reset();
    MPI_Finalize();
  }

  [[nodiscard]] fsdp2::Ranks ranks() const override { return communicator_->table(); }

 private:
  at::Tensor all_reduce(at::Tensor tensor, const std::string& what) override {
    const MPI_Datatype type = tensor.scalar_type() == at::kLong ? MPI_INT64_T : MPI_DOUBLE;
    const int code = MPI_Allreduce(MPI_IN_PLACE, tensor.mutable_data_ptr(), static_cast<int>(tensor.numel()), type,
                                   MPI_SUM, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS)
      throw std::runtime_error("all-reduce of " + what + " on rank " + std::to_string(rank()) + " failed in MPI.");
    return tensor;
  }

  std::unique_ptr<fsdp2::MpiCommunicator> communicator_;
};

}  // namespace

std::unique_ptr<RankGroup> meet_by_mpi(const RankEnvironment& environment) {
  return std::make_unique<MpiGroup>(environment);
}

}  // namespace trainer
