#include "samples/host_trainer/rank_group.hpp"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "samples/host_trainer/c10d_group.hpp"
#include "samples/host_trainer/mpi_group.hpp"

namespace trainer {

std::unique_ptr<RankGroup> RankGroup::meet(const RankEnvironment& environment, const std::string& backend,
                                           std::chrono::milliseconds limit) {
  if (backend == "mpi") return meet_by_mpi(environment);
  return std::make_unique<C10dGroup>(environment, backend, limit);
}

std::vector<double> RankGroup::sum(const std::vector<double>& values, const std::string& what) {
  const at::Tensor total = all_reduce(at::tensor(values, at::kDouble), what);
  return {total.const_data_ptr<double>(), total.const_data_ptr<double>() + total.numel()};
}

std::vector<std::vector<int64_t>> RankGroup::gather(const std::vector<int64_t>& values, const std::string& what) {
  const auto columns = static_cast<int64_t>(values.size());
  at::Tensor table = at::zeros({world(), columns}, at::kLong);
  table[rank()].copy_(at::tensor(values, at::kLong));
  table = all_reduce(table, what);
  std::vector<std::vector<int64_t>> rows;
  for (int64_t r = 0; r < world(); ++r) {
    const int64_t* row = table.const_data_ptr<int64_t>() + r * columns;
    rows.emplace_back(row, row + columns);
  }
  return rows;
}

void RankGroup::barrier(const std::string& what) {
  sum({0}, what);
}

}  // namespace trainer
