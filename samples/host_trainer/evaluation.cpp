#include "samples/host_trainer/evaluation.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "samples/host_trainer/loss.hpp"

namespace trainer {
namespace {

/// Puts a module into eval mode for a while.
class EvalMode {
 public:
  explicit EvalMode(torch::jit::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvalMode() { module_.train(was_training_); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  torch::jit::Module& module_;
  bool was_training_;
};

}  // namespace

Score evaluate(torch::jit::Module& module, const Dataset& data, const Config& config, RankGroup& group) {
  const at::NoGradGuard no_grad;
  const EvalMode eval_mode(module);
  double loss = 0;
  Correct correct;
  const int64_t stride = config.batch_size * group.world();
  for (int64_t begin = 0; begin < data.size(); begin += stride) {
    const int64_t mine = begin + config.batch_size * group.rank();
    const int64_t count = std::clamp<int64_t>(data.size() - mine, 0, config.batch_size);
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < std::max<int64_t>(count, 1); ++i) rows.push_back(count ? mine + i : 0);
    const Batch batch = data.rows(rows, group.device());
    const at::Tensor prediction = prediction_of(module.forward(batch.inputs));
    if (count == 0) continue;  // nothing was left for this rank
    loss += compute_loss(config, prediction, batch.target).item<double>() * static_cast<double>(count);
    const Correct part = count_correct(config, prediction, batch.target);
    correct.right += part.right;
    correct.count += part.count;
  }
  const auto sums =
      group.sum({loss, static_cast<double>(correct.right), static_cast<double>(correct.count)}, "the evaluation");
  Score score{.loss = sums[0] / static_cast<double>(data.size()), .accuracy = std::nullopt};
  if (sums[2] > 0) score.accuracy = sums[1] / sums[2];
  return score;
}

std::vector<int64_t> predict(torch::jit::Module& module, const Dataset& data, const Config& config, at::Device device) {
  if (config.loss != Loss::kCrossEntropy) return {};
  const at::NoGradGuard no_grad;
  const EvalMode eval_mode(module);
  std::vector<int64_t> classes;
  for (int64_t begin = 0; begin < data.size(); begin += config.batch_size) {
    std::vector<int64_t> rows;
    for (int64_t i = begin; i < std::min(data.size(), begin + config.batch_size); ++i) rows.push_back(i);
    const at::Tensor prediction = prediction_of(module.forward(data.rows(rows, device).inputs));
    if (prediction.dim() != 2) return {};
    const at::Tensor best = prediction.argmax(1).cpu();
    classes.insert(classes.end(), best.const_data_ptr<int64_t>(), best.const_data_ptr<int64_t>() + best.numel());
  }
  return classes;
}

}  // namespace trainer
