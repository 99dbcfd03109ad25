// Samples in memory, and the order in which ranks take them.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "samples/host_trainer/config.hpp"

namespace trainer {

struct Batch {
  std::vector<c10::IValue> inputs;  // of forward(), in order
  at::Tensor target;
};

class Dataset {
 public:
  /// The tensors that `config` names, of a file written by torch.save(dict). `key` is the config key of the file.
  static Dataset from_file(const Config& config, const std::string& file, const std::string& key);
  static Dataset synthetic(const Synthetic& synthetic, int64_t seed);

  [[nodiscard]] int64_t size() const { return target_.size(0); }
  [[nodiscard]] Batch rows(const std::vector<int64_t>& rows, at::Device device) const;

 private:
  std::vector<at::Tensor> inputs_;
  at::Tensor target_;
};

/// An endless sequence of rows: a new permutation for each pass, the same for the same seed on every rank.
class RowOrder {
 public:
  RowOrder(int64_t rows, int64_t seed) : rows_(rows), seed_(seed) {}
  std::vector<int64_t> slice(int64_t begin, int64_t count);

 private:
  void shuffle(int64_t pass);

  int64_t rows_;
  int64_t seed_;
  int64_t pass_ = -1;
  std::vector<int64_t> permutation_;
};

}  // namespace trainer
