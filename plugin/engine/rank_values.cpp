#include "plugin/engine/rank_values.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include "plugin/engine/communicate.hpp"

namespace fsdp2 {

template <typename T>
std::vector<T> all_gather_values(Communicator& communicator, const std::string& what, const std::vector<T>& values,
                                 c10::Device device) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const at::Tensor own = at::tensor(values, c10::CppTypeToScalarType<T>::value).to(device);
  at::Tensor all = at::empty({communicator.size() * own.numel()}, own.options());
  communicate(communicator, what, [&] { communicator.all_gather(all, own)->wait(); });
  all = all.cpu();
  const T* data = all.template const_data_ptr<T>();
  return {data, data + all.numel()};
}

template std::vector<int64_t> all_gather_values(Communicator&, const std::string&, const std::vector<int64_t>&,
                                                c10::Device);
template std::vector<double> all_gather_values(Communicator&, const std::string&, const std::vector<double>&,
                                               c10::Device);

}  // namespace fsdp2
