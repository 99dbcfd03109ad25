#include "samples/host_trainer/loss.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include <stdexcept>

namespace trainer {
namespace {

constexpr int64_t kIgnored = -100;

/// Scores a row and class targets, flat. For causal_lm, position t predicts token t + 1.
std::pair<at::Tensor, at::Tensor> flatten(const Config& config, at::Tensor prediction, at::Tensor target) {
  if (config.loss == Loss::kCausalLm) {
    if (prediction.dim() != 3 || target.dim() != 2)
      throw std::runtime_error(
          config.place("data.target") +
          "\"causal_lm\" needs an output of shape [batch, sequence, vocabulary] and targets of shape "
          "[batch, sequence]; they have " +
          std::to_string(prediction.dim()) + " and " + std::to_string(target.dim()) + " dimensions.");
    target = at::constant_pad_nd(target.slice(1, 1), {0, 1}, kIgnored);  // cutting the scores would copy them
  }
  if (prediction.dim() < 2 || prediction.numel() / prediction.size(-1) != target.numel())
    throw std::runtime_error(config.place("data.target") + "the output of shape " + c10::str(prediction.sizes()) +
                             " does not fit class targets of shape " + c10::str(target.sizes()) +
                             ": it needs them and a last dimension of classes.");
  return {prediction.reshape({-1, prediction.size(-1)}), target.reshape({-1}).to(at::kLong)};
}

}  // namespace

at::Tensor prediction_of(const c10::IValue& output) {
  if (output.isTensor()) return output.toTensor();
  if (output.isTuple() && !output.toTupleRef().elements().empty())
    return prediction_of(output.toTupleRef().elements()[0]);
  if (output.isTensorList() && output.toTensorList().size() > 0) return output.toTensorList().get(0);
  if (output.isList() && !output.toListRef().empty()) return prediction_of(output.toListRef()[0]);
  if (output.isGenericDict() && output.toGenericDict().size() > 0) {
    const auto dict = output.toGenericDict();
    const auto logits = dict.find("logits");
    return prediction_of(logits != dict.end() ? logits->value() : dict.begin()->value());
  }
  throw std::runtime_error("forward() returned " + output.tagKind() + ", which holds no tensor for the loss.");
}

at::Tensor compute_loss(const Config& config, const at::Tensor& prediction, const at::Tensor& target) {
  if (config.loss == Loss::kMse) {
    if (prediction.sizes() != target.sizes())
      throw std::runtime_error(config.place("data.target") + "\"mse\" compares an output of shape " +
                               c10::str(prediction.sizes()) + " with targets of shape " + c10::str(target.sizes()) +
                               ".");
    return at::mse_loss(prediction, target.to(prediction.dtype()));
  }
  const auto [scores, classes] = flatten(config, prediction, target);
  const bool narrow = scores.scalar_type() == at::kHalf || scores.scalar_type() == at::kBFloat16;
  return at::cross_entropy_loss(narrow ? scores.to(at::kFloat) : scores, classes, /*weight=*/{}, at::Reduction::Mean,
                                kIgnored);
}

Correct count_correct(const Config& config, const at::Tensor& prediction, const at::Tensor& target) {
  if (config.loss == Loss::kMse) return {};
  const auto [scores, classes] = flatten(config, prediction, target);
  const at::Tensor counted = classes != kIgnored;
  return {((scores.argmax(1) == classes) & counted).sum().item<int64_t>(), counted.sum().item<int64_t>()};
}

}  // namespace trainer
