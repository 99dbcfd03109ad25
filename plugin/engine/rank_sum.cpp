#include "plugin/engine/rank_sum.hpp"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace fsdp2 {
namespace {

// Sums stay in the first cache while every part is added; big enough for vector code, small enough for the stack.
constexpr int64_t kBlock = 1024;

template <typename T>
void sum_of(T* output, const std::vector<const T*>& parts, double divisor, int64_t begin, int64_t end) {
  using Wide = at::opmath_type<T>;
  const auto wide_divisor = static_cast<Wide>(divisor);
  std::array<Wide, kBlock> sum;  // NOLINT: the first part fills it
  for (int64_t block = begin; block < end; block += kBlock) {
    const int64_t n = std::min(kBlock, end - block);
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Wide>(parts[0][block + i]);
    for (size_t part = 1; part < parts.size(); ++part) {
      const T* values = parts[part] + block;
      for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<Wide>(values[i]);
    }
    for (int64_t i = 0; i < n; ++i) output[block + i] = static_cast<T>(sum[i] / wide_divisor);
  }
}

}  // namespace

void rank_sum(at::Tensor& output, const std::vector<at::Tensor>& parts, double divisor) {
  if (!output.is_cpu()) {
    at::Tensor sum = parts[0].to(at::toOpMathType(output.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
    for (size_t part = 1; part < parts.size(); ++part) sum.add_(parts[part]);
    output.copy_(sum.div_(divisor));
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, output.scalar_type(), "rank_sum", [&] {
    std::vector<const scalar_t*> pointers;
    pointers.reserve(parts.size());
    for (const at::Tensor& part : parts) pointers.push_back(part.const_data_ptr<scalar_t>());
    auto* target = output.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, output.numel(), 64 * kBlock,
                     [&](int64_t begin, int64_t end) { sum_of(target, pointers, divisor, begin, end); });
  });
}

}  // namespace fsdp2
