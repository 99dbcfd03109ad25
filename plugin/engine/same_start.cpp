#include "plugin/engine/same_start.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "plugin/engine/communicate.hpp"
#include "plugin/engine/content_hash.hpp"
#include "plugin/engine/rank_values.hpp"
#include "registry/error.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2 {
namespace {

/// In the place of a model's hash.
constexpr int64_t kNoStart = 0;

constexpr const char* kWhat = "the comparison of models before sharding";

/// What the table of a plan does not say, a line each.
std::string settings_of(const Plan& plan) {
  const auto number = [](std::optional<double> value) { return value ? value_text(Value(*value)) : "none"; };
  return "load.mode = " + std::string(plan.broadcasts_values ? "\"broadcast\"" : "\"sharded\"") +
         "\nprefetch.forward = " + std::to_string(plan.prefetch_forward) +
         "\nprefetch.backward = " + std::to_string(plan.prefetch_backward) +
         "\ngradient.divide_factor = " + number(plan.gradient_divisor) +
         "\ngradient.clip_norm = " + number(plan.clip_norm) +
         "\ndebug.check_steps = " + std::to_string(plan.check_steps) +
         "\ndebug.order_check = " + std::to_string(plan.order_check) +
         "\ndebug.force_collectives = " + (plan.force_collectives ? "true" : "false") + "\n";
}

std::string reductions_of(const Plan& plan) {
  std::string text;
  for (const PlannedUnit& unit : plan.units) {
    for (const PlannedBuffer& buffer : unit.buffers) {
      if (!buffer.trainable) continue;
      text += "\ngradients of unit `" + unit.path + "` are reduced in " + std::string(name_of(buffer.reduced));
    }
  }
  return text;
}

/// Whatever of model and plan must be equal on all ranks, as text.
std::string describe(const ModuleTree& tree, const Plan& plan, const std::vector<NamedTensor>& buffers) {
  std::string text = settings_of(plan) + to_table(plan) + reductions_of(plan);
  const auto add_shape = [&](at::IntArrayRef shape) {
    for (const int64_t size : shape) text += " " + std::to_string(size);
  };
  for (const TreeParameter& parameter : tree.parameters) {
    for (const std::string& name : parameter.names) text += "\n" + name;
    add_shape(parameter.shape);
    text += std::string(" ") + std::string(name_of(parameter.dtype)) + (parameter.trainable ? " trainable" : " frozen");
  }
  if (!plan.broadcasts_values) return text;  // else buffers are the host's own affair
  for (const auto& [name, tensor] : buffers) {
    text += "\nbuffer " + name;
    add_shape(tensor.sizes());
    text += std::string(" ") + c10::toString(tensor.scalar_type());
  }
  return text;
}

/// The first line that is not the same, of both.
std::string first_difference(const std::string& one, const std::string& other) {
  const auto [end, other_end] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  const auto line_of = [](const std::string& text, int64_t place) -> std::string {
    const size_t begin = place == 0 ? 0 : text.rfind('\n', static_cast<size_t>(place - 1)) + 1;
    if (begin >= text.size()) return "nothing more";
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    return "`" + line.substr(line.find_first_not_of(' ')) + "`";
  };
  return "rank 0 has " + line_of(one, end - one.begin()) + ", it has " + line_of(other, other_end - other.begin());
}

/// Rank 0's, into everyone's. By `device`, which the transport serves: a buffer may lie elsewhere.
void send_values(Communicator& communicator, const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor dense = tensor.detach().to(device).contiguous();
  communicate(communicator, "the broadcast of rank 0's values", [&] { communicator.broadcast(dense)->wait(); });
  if (!dense.is_alias_of(tensor)) tensor.detach().copy_(dense);
}

/// Ignored parameters are the host's own, as buffers are.
void set_aside_ignored(const Plan& plan, ModuleTree& tree, std::vector<at::Tensor>& tensors,
                       std::vector<NamedTensor>& buffers) {
  const std::set<std::string> ignored(plan.ignored_parameters.begin(), plan.ignored_parameters.end());
  if (ignored.empty()) return;
  std::vector<TreeParameter> parameters;
  std::vector<at::Tensor> kept;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tree.parameters[i].names.front();
    if (ignored.contains(name)) {
      buffers.push_back({name, tensors[i]});
    } else {
      parameters.push_back(tree.parameters[i]);
      kept.push_back(tensors[i]);
    }
  }
  tree.parameters = std::move(parameters);
  tensors = std::move(kept);
}

}  // namespace

void report_no_start(Communicator& communicator, c10::Device device) noexcept {
  if (communicator.size() == 1) return;
  try {
    all_gather_values<int64_t>(communicator, kWhat, {kNoStart, communicator.rank()}, device);
  } catch (const std::exception&) {  // the fault that is reported counts, not that nobody heard of it
  }
}

void check_same_start(Communicator& communicator, ModuleTree tree, const Plan& plan, std::vector<at::Tensor> tensors,
                      std::vector<NamedTensor> buffers) {
  if (communicator.size() == 1) return;
  set_aside_ignored(plan, tree, tensors, buffers);
  const c10::Device device = tensors.empty() ? c10::kCPU : tensors.front().device();

  const auto ranks = static_cast<size_t>(communicator.size());
  const auto given = all_gather_values<int64_t>(
      communicator, kWhat, {static_cast<int64_t>(content_hash(describe(tree, plan, buffers))), communicator.rank()},
      device);
  const auto model_of = [&](size_t rank) { return given[2 * rank]; };
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int64_t named = given[2 * rank + 1];
    if (named != static_cast<int64_t>(rank)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the transport has rank " + std::to_string(named) + " in the place of rank " + std::to_string(rank) +
                      ": every rank must give its own number",
                  {.rank = named});
    }
    if (model_of(rank) != kNoStart) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "rank " + std::to_string(rank) + " could not be sharded, so no rank is; its own error says why",
                {.rank = static_cast<int64_t>(rank)});
  }
  for (size_t rank = 1; rank < ranks; ++rank) {
    if (model_of(rank) == model_of(0)) continue;
    const auto texts = all_gather_texts(communicator, kWhat, describe(tree, plan, buffers), device);
    throw Error(ErrorCode::kFailedPrecondition,
                "rank " + std::to_string(rank) + " has another model or other options than rank 0: " +
                    first_difference(texts[0], texts[rank]) + "; give every rank the same module and configuration",
                {.rank = static_cast<int64_t>(rank)});
  }

  if (plan.broadcasts_values) {
    for (const at::Tensor& tensor : tensors) send_values(communicator, tensor, device);
    for (const auto& [name, buffer] : buffers) send_values(communicator, buffer, device);
    return;
  }
  if (tensors.empty()) return;
  std::vector<int64_t> hashes;
  for (const at::Tensor& tensor : tensors) {
    hashes.push_back(static_cast<int64_t>(content_hash(tensor)));
  }
  const auto weights = all_gather_values<int64_t>(communicator, kWhat, hashes, device);
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t rank = 1; rank < ranks; ++rank) {
      if (weights[rank * tensors.size() + i] == weights[i]) continue;
      throw Error(ErrorCode::kFailedPrecondition,
                  "rank " + std::to_string(rank) + " holds other values than rank 0 in parameter `" +
                      tree.parameters[i].names[0] + "`; load the same weights on every rank before sharding, or set " +
                      "`load.mode = \"broadcast\"` to take rank 0's",
                  {.parameter = tree.parameters[i].names[0], .rank = static_cast<int64_t>(rank)});
    }
  }
}

}  // namespace fsdp2
