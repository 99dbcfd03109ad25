// A TorchScript file written again with other weights, one tensor in memory at a time. Code, constants and attributes
// are copied as they are, so the result is as plain as the file was.
#pragma once
#include <ATen/core/Tensor.h>

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "plugin/checkpoint/module_archive.hpp"

namespace caffe2::serialize {
class PyTorchStreamWriter;
}

namespace fsdp2 {

class ModuleRewrite {
 public:
  /// Nothing shows at `target` before finish(). Throws Error: as ModuleArchive for the source; kInvalidArgument where
  /// no file can be made beside the target.
  ModuleRewrite(const std::string& source, std::string target);
  /// Without a finish() before, what was written is removed.
  ~ModuleRewrite();
  ModuleRewrite(const ModuleRewrite&) = delete;
  ModuleRewrite& operator=(const ModuleRewrite&) = delete;

  /// As ModuleArchive::require, of the source.
  void require(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) const {
    archive_.require(name, shape, dtype);
  }
  /// Writes the tensor in the place of the file's. A tied one once, whatever its name.
  void replace(const std::string& name, const at::Tensor& tensor);
  /// Copies all other records and puts the file in its place. Throws Error (kInvalidArgument) where a write failed.
  void finish();

 private:
  void require_written() const;

  ModuleArchive archive_;
  std::string target_;
  std::string unfinished_;
  std::ofstream file_;
  int error_ = 0;  // of the first write that failed; LibTorch's writer must not hear of it, it would end the process
  std::map<std::string, std::string> overlaid_;  // records of which several tensors have a part
  std::set<std::string> written_;
  std::unique_ptr<caffe2::serialize::PyTorchStreamWriter> writer_;
};

}  // namespace fsdp2
