#include "plugin/engine/rank_values.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

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

// Padded to the longest.
std::vector<std::string> all_gather_texts(Communicator& communicator, const std::string& what, const std::string& text,
                                          c10::Device device) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const auto lengths = all_gather_values<int64_t>(communicator, what, {static_cast<int64_t>(text.size())}, device);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  at::Tensor own = at::zeros({longest}, at::kByte);
  std::copy(text.begin(), text.end(), own.mutable_data_ptr<uint8_t>());
  own = own.to(device);
  at::Tensor all = at::empty({communicator.size() * longest}, own.options());
  communicate(communicator, what, [&] { communicator.all_gather(all, own)->wait(); });
  all = all.cpu();
  std::vector<std::string> texts;
  const auto* bytes = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    texts.emplace_back(bytes + static_cast<int64_t>(rank) * longest, static_cast<size_t>(lengths[rank]));
  }
  return texts;
}

template std::vector<int64_t> all_gather_values(Communicator&, const std::string&, const std::vector<int64_t>&,
                                                c10::Device);
template std::vector<double> all_gather_values(Communicator&, const std::string&, const std::vector<double>&,
                                               c10::Device);

}  // namespace fsdp2
