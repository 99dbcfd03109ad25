// Losses and scores of a module's output.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "samples/host_trainer/config.hpp"

namespace trainer {

/// The tensor the loss is about: the output itself, "logits" of a dict, or the first element.
at::Tensor prediction_of(const c10::IValue& output);

/// The mean over the batch. Class targets of -100 are left out.
at::Tensor compute_loss(const Config& config, const at::Tensor& prediction, const at::Tensor& target);

/// How many classes or tokens were right, and of how many. {0, 0} for a loss without classes.
struct Correct {
  int64_t right = 0;
  int64_t count = 0;
};
Correct count_correct(const Config& config, const at::Tensor& prediction, const at::Tensor& target);

}  // namespace trainer
