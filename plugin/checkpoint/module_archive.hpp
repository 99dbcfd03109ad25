// A TorchScript file, read without its weights: which record holds which tensor.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/checkpoint/mapped_file.hpp"

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace fsdp2 {

class ModuleArchive {
 public:
  struct TensorRecord {
    std::string record;  // "data/7"
    at::Tensor tensor;   // as the file has it; its memory is the mapping
  };

  /// Throws Error: kNotFound where there is no such file, kInvalidArgument where it is no TorchScript file.
  explicit ModuleArchive(const std::string& path);
  ~ModuleArchive();
  ModuleArchive(const ModuleArchive&) = delete;
  ModuleArchive& operator=(const ModuleArchive&) = delete;

  [[nodiscard]] const std::string& path() const { return file_->path(); }
  /// The module, whose tensors' memory is the mapping: what is not read is not in memory. For looking at, not for use:
  /// its code names the file's own lines, not those it was written from.
  [[nodiscard]] const torch::jit::Module& module() const { return module_; }
  /// Parameters, buffers and other tensor attributes by their full names; tied ones under each. Empty tensors have no
  /// record.
  [[nodiscard]] const std::map<std::string, TensorRecord>& tensors() const { return tensors_; }
  /// Throws Error (kInvalidArgument), naming the tensor, where the file has none of that name, shape and dtype.
  void require(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) const;
  /// Elements [begin, end) of the flattened tensor. Throws Error (kInvalidArgument) where the file was cut short.
  [[nodiscard]] at::Tensor elements(const std::string& name, int64_t begin, int64_t end) const;
  /// All of the file, in its order.
  [[nodiscard]] std::vector<std::string> records() const;
  /// The bytes of one record.
  [[nodiscard]] std::string read(const std::string& record) const;
  [[nodiscard]] bool is_compressed(const std::string& record) const;

 private:
  void read_structure();

  std::shared_ptr<MappedFile> file_;
  std::shared_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
  torch::jit::Module module_;
  std::map<std::string, TensorRecord> tensors_;
};

}  // namespace fsdp2
