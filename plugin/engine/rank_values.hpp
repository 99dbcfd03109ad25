// A few numbers of each rank, for every rank.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "plugin/engine/communicator.hpp"

namespace fsdp2 {

/// Rank after rank: as many values as each gives, times ranks. `what` it is for, as in communicate(). `device`: where
/// the transport wants them. Collective.
template <typename T>
std::vector<T> all_gather_values(Communicator& communicator, const std::string& what, const std::vector<T>& values,
                                 c10::Device device);

/// A text of each rank, for every rank. Collective.
std::vector<std::string> all_gather_texts(Communicator& communicator, const std::string& what, const std::string& text,
                                          c10::Device device);

extern template std::vector<int64_t> all_gather_values(Communicator&, const std::string&, const std::vector<int64_t>&,
                                                       c10::Device);
extern template std::vector<double> all_gather_values(Communicator&, const std::string&, const std::vector<double>&,
                                                      c10::Device);

}  // namespace fsdp2
