#include "plugin/checkpoint/module_rewrite.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <caffe2/serialize/inline_container.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "registry/error.hpp"

namespace fsdp2 {
ModuleRewrite::ModuleRewrite(const std::string& source, std::string target)
    : archive_(source), target_(std::move(target)) {
  unfinished_ = target_ + "." + std::to_string(::getpid()) + ".unfinished";
  errno = 0;
  file_.open(unfinished_, std::ios::binary);
  if (!file_) {
    throw Error(ErrorCode::kInvalidArgument, "cannot write " + unfinished_ + ": " + std::strerror(errno),
                {.file = target_});
  }
  writer_ = std::make_unique<caffe2::serialize::PyTorchStreamWriter>([this](const void* data, size_t bytes) {
    if (error_ == 0 && !file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes)))
      error_ = errno != 0 ? errno : EIO;
    return bytes;
  });
}

ModuleRewrite::~ModuleRewrite() {
  writer_.reset();  // it writes its end
  if (!unfinished_.empty()) std::remove(unfinished_.c_str());
}

// Overlaid on the record's own bytes, since a tensor may be a part of its storage.
void ModuleRewrite::replace(const std::string& name, const at::Tensor& tensor) {
  archive_.require(name, tensor.sizes(), tensor.scalar_type());
  const at::NoGradGuard no_grad;
  const auto& [record, stored] = archive_.tensors().at(name);
  const auto bytes = stored.storage().nbytes();
  const bool is_all = stored.nbytes() == bytes && stored.is_contiguous();
  if (is_all) {
    if (!written_.insert(record).second) return;  // tied
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    writer_->writeRecord(record, plain.const_data_ptr(), bytes);
  } else {
    auto [found, is_new] = overlaid_.try_emplace(record);
    if (is_new) found->second = archive_.read(record);
    const at::Tensor all = at::from_blob(found->second.data(), {static_cast<int64_t>(bytes)}, at::kByte);
    at::empty({0}, stored.options())
        .set_(all.storage(), stored.storage_offset(), stored.sizes(), stored.strides())
        .copy_(tensor.detach());
  }
  require_written();
}

void ModuleRewrite::finish() {
  for (const std::string& record : archive_.records()) {
    // The writer makes an identity of its own.
    if (record == caffe2::serialize::kSerializationIdRecordName || written_.count(record) != 0) continue;
    const auto overlaid = overlaid_.find(record);
    const std::string bytes = overlaid != overlaid_.end() ? std::move(overlaid->second) : archive_.read(record);
    writer_->writeRecord(record, bytes.data(), bytes.size(), archive_.is_compressed(record));
  }
  writer_->writeEndOfFile();
  errno = 0;
  if (error_ == 0 && !file_.flush()) error_ = errno != 0 ? errno : EIO;
  file_.close();
  require_written();
  if (std::rename(unfinished_.c_str(), target_.c_str()) != 0) {
    error_ = errno;
    require_written();
  }
  unfinished_.clear();
}

void ModuleRewrite::require_written() const {
  if (error_ == 0) return;
  throw Error(ErrorCode::kInvalidArgument, "writing " + target_ + " failed: " + std::strerror(error_),
              {.file = target_});
}

}  // namespace fsdp2
