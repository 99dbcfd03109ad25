#include "samples/host_trainer/dataset.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>

#include "samples/host_trainer/nearest.hpp"

namespace trainer {
namespace {

c10::Dict<c10::IValue, c10::IValue> load_dict(const std::string& file, const std::string& place) {
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  try {
    const c10::IValue value = torch::jit::pickle_load(bytes);
    if (value.isGenericDict()) return value.toGenericDict();
  } catch (const c10::Error&) {
  }
  throw std::runtime_error(place + file + " is not a dict of tensors written by torch.save.");
}

at::Tensor tensor_named(const c10::Dict<c10::IValue, c10::IValue>& dict, const std::string& name,
                        const std::string& file, const std::string& place) {
  std::vector<std::string> names;
  for (const auto& entry : dict) {
    if (!entry.key().isString()) continue;
    names.push_back(entry.key().toStringRef());
    if (names.back() != name) continue;
    if (entry.value().isTensor() && entry.value().toTensor().dim() > 0) return entry.value().toTensor();
    throw std::runtime_error(place + '"' + name + "\" in " + file + " is not a tensor with a row a sample.");
  }
  throw std::runtime_error(place + "there is no tensor \"" + name + "\" in " + file + did_you_mean(name, names) +
                           " It has: " + join(names) + ".");
}

}  // namespace

Dataset Dataset::from_file(const Config& config, const std::string& file, const std::string& key) {
  const auto dict = load_dict(file, config.place(key));
  Dataset data;
  for (const std::string& name : config.inputs)
    data.inputs_.push_back(tensor_named(dict, name, file, config.place("data.inputs")));
  data.target_ = tensor_named(dict, config.target, file, config.place("data.target"));
  for (size_t i = 0; i < data.inputs_.size(); ++i)
    if (data.inputs_[i].size(0) != data.size())
      throw std::runtime_error(config.place("data.inputs") + '"' + config.inputs[i] + "\" has " +
                               std::to_string(data.inputs_[i].size(0)) + " rows but \"" + config.target + "\" has " +
                               std::to_string(data.size()) + ", in " + file + '.');
  if (data.size() == 0) throw std::runtime_error(config.place(key) + file + " has no rows.");
  return data;
}

Dataset Dataset::synthetic(const Synthetic& s, int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  at::Tensor tokens = at::empty({s.samples, s.sequence}, at::kLong);
  int64_t* token = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < s.samples; ++i) {
    auto last = static_cast<int64_t>(random() % static_cast<uint64_t>(s.vocab));
    for (int64_t j = 0; j < s.sequence; ++j, ++token) {
      *token = last;
      last = (3 * last + 7 + static_cast<int64_t>(random() % 2)) % s.vocab;
    }
  }
  Dataset data;
  data.inputs_ = {tokens};
  data.target_ = tokens;
  return data;
}

Batch Dataset::rows(const std::vector<int64_t>& rows, at::Device device) const {
  const at::Tensor index = at::tensor(rows, at::kLong);
  Batch batch;
  for (const at::Tensor& input : inputs_) batch.inputs.emplace_back(input.index_select(0, index).to(device));
  batch.target = target_.index_select(0, index).to(device);
  return batch;
}

std::vector<int64_t> RowOrder::slice(int64_t begin, int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t i = begin; i < begin + count; ++i) {
    if (i / rows_ != pass_) shuffle(i / rows_);
    rows.push_back(permutation_[static_cast<size_t>(i % rows_)]);
  }
  return rows;
}

void RowOrder::shuffle(int64_t pass) {
  // By hand: std::shuffle may differ from one standard library to another, and ranks must agree.
  pass_ = pass;
  permutation_.resize(static_cast<size_t>(rows_));
  std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
  std::seed_seq seed{seed_, pass};
  std::mt19937_64 random(seed);
  for (size_t i = permutation_.size(); i > 1; --i) std::swap(permutation_[i - 1], permutation_[random() % i]);
}

}  // namespace trainer
