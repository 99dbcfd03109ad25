// Scores a module on held-out samples.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <vector>

#include "samples/host_trainer/dataset.hpp"
#include "samples/host_trainer/rank_group.hpp"
#include "samples/host_trainer/summary.hpp"

namespace trainer {

/// Ranks share the samples out among them; each calls forward() equally often, since a sharded one is collective.
Score evaluate(torch::jit::Module& module, const Dataset& data, const Config& config, RankGroup& group);

/// The class of every sample, by a module that this process has whole. Empty where the output is not one class a
/// sample.
std::vector<int64_t> predict(torch::jit::Module& module, const Dataset& data, const Config& config, at::Device device);

}  // namespace trainer
