#include "plugin/checkpoint/module_archive.hpp"

#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/operator_upgraders/upgraders_entry.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/csrc/jit/serialization/storage_context.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "plugin/engine/exception_text.hpp"
#include "registry/error.hpp"
#include "registry/nearest_name.hpp"

namespace fsdp2 {
namespace {

namespace jit = torch::jit;

constexpr const char* kDataPrefix = "data/";
constexpr const char* kConstantsPrefix = "constants/";

/// The archive's own bookkeeping, without touching the mapping.
class FileReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit FileReader(std::shared_ptr<MappedFile> file) : file_(std::move(file)) {}
  size_t size() const override { return file_->size(); }
  size_t read(uint64_t position, void* target, size_t bytes, const char* /*what*/) const override {
    return file_->read(position, target, bytes);
  }

 private:
  std::shared_ptr<MappedFile> file_;
};

/// A storage over a part of the file.
c10::Storage storage_over(const std::shared_ptr<MappedFile>& file, size_t offset, size_t bytes) {
  auto* owner = new std::shared_ptr<MappedFile>(file);
  const auto release = [](void* context) { delete static_cast<std::shared_ptr<MappedFile>*>(context); };
  return {c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(file->data() + offset, owner, release, c10::kCPU),
          /*allocator=*/nullptr, /*resizable=*/false};
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

bool is_data(const std::string& record) {
  return record.starts_with(kDataPrefix);
}

/// What a file that is no TorchScript is instead, where that can be told. `reader`: null where it is no archive at all.
std::string what_it_is(const MappedFile& file, caffe2::serialize::PyTorchStreamReader* reader,
                       const std::exception& error) {
  constexpr const char* kExport = "; write it with torch.jit.script(model).save(...) or torch.jit.trace";
  std::string begin(std::min<size_t>(file.size(), 4), '\0');
  file.read(0, begin.data(), begin.size());
  if (reader != nullptr && !reader->hasRecord("constants.pkl") && reader->hasRecord("data.pkl")) {
    return std::string("it was written by torch.save, which keeps tensors and Python objects and no code") + kExport;
  }
  if (reader == nullptr && begin.starts_with("\x80\x02")) {
    return std::string("it is a Python pickle, as torch.save wrote them before PyTorch 1.6") + kExport;
  }
  if (reader != nullptr && !reader->hasRecord("constants.pkl")) {
    return std::string("the archive holds no TorchScript, as one of torch.export") + kExport;
  }
  const std::string fault = exception_text(error);
  if (reader == nullptr && fault.find("hasRecord(\"version\")") != std::string::npos) {
    return std::string("it is a zip that holds no TorchScript") + kExport;
  }
  if (reader == nullptr && begin.starts_with("PK")) {
    return "the archive is damaged, or was cut short: " + fault;
  }
  if (reader == nullptr) return std::string("it is no archive") + kExport;
  return fault;
}

}  // namespace

ModuleArchive::ModuleArchive(const std::string& path) : file_(std::make_shared<MappedFile>(path)) {
  try {
    reader_ = std::make_shared<caffe2::serialize::PyTorchStreamReader>(std::make_shared<FileReader>(file_));
    read_structure();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                path + " is not a TorchScript file: " + what_it_is(*file_, reader_.get(), error), {.file = path});
  }
}

ModuleArchive::~ModuleArchive() = default;

void ModuleArchive::read_structure() {
  jit::populate_upgraders_graph_map();
  constexpr size_t kAlignment = 16;
  const auto mapped_below = [&](const std::string& prefix) {
    auto mapped = std::make_shared<jit::DeserializationStorageContext>();
    for (const std::string& record : reader_->getAllRecords()) {
      if (!record.starts_with(prefix) || reader_->getRecordSize(record) == 0) continue;
      const size_t offset = reader_->getRecordOffset(record);
      if (is_compressed(record) || offset % kAlignment != 0) continue;  // read into memory where it is met
      mapped->addStorage(record.substr(prefix.size()), storage_over(file_, offset, reader_->getRecordSize(record)));
    }
    return mapped;
  };
  const auto context = mapped_below(kDataPrefix);
  std::unordered_map<const c10::StorageImpl*, std::string> records;
  const auto unit = std::make_shared<jit::CompilationUnit>();
  const auto constants = std::make_shared<std::vector<c10::IValue>>();
  const auto source = [reader = reader_](const std::string& qualifier) -> std::shared_ptr<jit::Source> {
    std::string record = "code/" + qualifier + ".py";
    std::replace(record.begin(), record.end() - 3, '.', '/');
    if (!reader->hasRecord(record)) return nullptr;
    const auto [data, bytes] = reader->getRecord(record);
    return std::make_shared<jit::Source>(std::string(static_cast<const char*>(data.get()), bytes), record, 1);
  };
  const jit::SourceImporter importer(unit, constants.get(), source, reader_->version());
  const auto resolve = [&](const c10::QualifiedName& name) {
    return c10::StrongTypePtr(unit, importer.loadType(name));
  };
  const auto constant_table =
      jit::readArchiveAndTensors("constants", "", "", resolve, jit::ObjLoaderFunc, c10::Device(c10::kCPU), *reader_,
                                 jit::Unpickler::defaultTypeParser, mapped_below(kConstantsPrefix));
  for (const auto& constant : constant_table.toTupleRef().elements()) constants->push_back(constant);
  module_ = jit::Module(jit::readArchiveAndTensors("data", "", "", resolve, jit::ObjLoaderFunc, c10::Device(c10::kCPU),
                                                   *reader_, jit::Unpickler::defaultTypeParser, context)
                            .toObject());
  for (const std::string& record : reader_->getAllRecords()) {
    if (!is_data(record)) continue;
    const std::string key = record.substr(std::string(kDataPrefix).size());
    if (context->hasStorage(key)) records.emplace(context->getStorage(key).unsafeGetStorageImpl(), record);
  }
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto found = records.find(tensor.storage().unsafeGetStorageImpl());
    if (found != records.end()) tensors_.emplace(name, TensorRecord{found->second, tensor});
  };
  for (const auto& parameter : module_.named_parameters()) add(parameter.name, parameter.value);
  for (const auto& buffer : module_.named_buffers()) add(buffer.name, buffer.value);
}

void ModuleArchive::require(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, tensor] : tensors_) names.push_back(known);
    const std::string nearest = nearest_name(name, names);
    throw Error(ErrorCode::kInvalidArgument,
                path() + " has no tensor `" + name + "`; it is the file of another model" +
                    (nearest.empty() ? "" : " (nearest: `" + nearest + "`)"),
                {.file = path(), .parameter = name, .nearest = nearest});
  }
  if (found->second.tensor.sizes() != shape) {
    throw Error(ErrorCode::kInvalidArgument,
                "`" + name + "` is " + shape_text(shape) + ", but " + shape_text(found->second.tensor.sizes()) +
                    " in " + path(),
                {.file = path(), .parameter = name});
  }
  if (found->second.tensor.scalar_type() != dtype) {
    throw Error(ErrorCode::kInvalidArgument,
                "`" + name + "` has elements of type " + c10::toString(dtype) + ", but " +
                    c10::toString(found->second.tensor.scalar_type()) + " in " + path() + ": values would be rounded",
                {.file = path(), .parameter = name});
  }
}

// By reads of the file, not through the mapping: a file that somebody cuts short meanwhile is an error and no signal.
at::Tensor ModuleArchive::elements(const std::string& name, int64_t begin, int64_t end) const {
  const at::Tensor& stored = tensors_.at(name).tensor;
  const auto* data = static_cast<const char*>(stored.const_data_ptr());
  const bool in_file = data >= file_->data() && data < file_->data() + file_->size();
  if (!in_file || !stored.is_contiguous()) return stored.reshape({-1}).slice(0, begin, end);
  at::Tensor result = at::empty({end - begin}, stored.options());
  const auto width = static_cast<int64_t>(stored.element_size());
  const auto offset = static_cast<uint64_t>(data - file_->data() + begin * width);
  if (file_->read(offset, result.mutable_data_ptr(), result.nbytes()) != result.nbytes()) {
    throw Error(ErrorCode::kInvalidArgument, path() + " ends before `" + name + "` does: it was changed meanwhile",
                {.file = path(), .parameter = name});
  }
  return result;
}

std::vector<std::string> ModuleArchive::records() const {
  return reader_->getAllRecords();
}

std::string ModuleArchive::read(const std::string& record) const {
  const auto [data, bytes] = reader_->getRecord(record);
  return {static_cast<const char*>(data.get()), bytes};
}

bool ModuleArchive::is_compressed(const std::string& record) const {
  constexpr size_t kMethod = 8;  // in a zip file's local header
  uint16_t method = 0;
  file_->read(reader_->getRecordHeaderOffset(record) + kMethod, &method, sizeof(method));
  return method != 0;
}

}  // namespace fsdp2
