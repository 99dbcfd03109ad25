#include "plugin/engine/gradients.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "plugin/engine/rank_values.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// Sum, or maximum, over the ranks. Not a number where any is: std::max would drop it.
double combined(double own, bool greatest, Communicator* across, c10::Device device) {
  if (across == nullptr) return own;
  double result = 0;
  for (const double value : all_gather_values<double>(*across, "a norm or unscaling of gradients", {own}, device)) {
    if (std::isnan(value) || std::isnan(result)) return std::nan("");
    result = greatest ? std::max(result, value) : result + value;
  }
  return result;
}

double norm_of(const at::Tensor& gradient, double p) {
  const auto wide = gradient.is_complex() ? at::kComplexDouble : at::kDouble;
  return at::linalg_vector_norm(gradient, p, at::OptionalIntArrayRef(), /*keepdim=*/false, wide).item<double>();
}

}  // namespace

double gradient_norm(std::span<const at::Tensor> gradients, double p, Communicator* across, c10::Device device) {
  if (!(p > 0))
    throw Error(ErrorCode::kInvalidArgument, "the norm's p is " + std::to_string(p) + ", expected a number above 0");
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const bool greatest = std::isinf(p);
  double own = 0;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) continue;
    const double norm = norm_of(gradient, p);
    if (std::isnan(norm)) own = norm;
    own = greatest ? std::max(own, norm) : own + std::pow(norm, p);
  }
  const double total = combined(own, greatest, across, device);
  return greatest ? total : std::pow(total, 1 / p);
}

bool unscale_gradients(std::span<const at::Tensor> gradients, double scale, Communicator* across, c10::Device device) {
  if (!(scale > 0) || std::isinf(scale)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the scale is " + std::to_string(scale) + ", expected a finite number above 0");
  }
  scale_gradients(gradients, 1 / scale);
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const bool found = std::any_of(gradients.begin(), gradients.end(),
                                 [](const at::Tensor& gradient) { return !at::isfinite(gradient).all().item<bool>(); });
  return combined(found ? 1 : 0, /*greatest=*/true, across, device) > 0;
}

void scale_gradients(std::span<const at::Tensor> gradients, double factor) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor);
}

}  // namespace fsdp2
