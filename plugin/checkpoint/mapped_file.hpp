// A file in memory, paged in where it is touched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fsdp2 {

class MappedFile {
 public:
  /// Throws Error (kNotFound) with the system's reason.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] size_t size() const { return size_; }
  /// Private to this process: writes do not reach the file.
  [[nodiscard]] char* data() const { return data_; }
  /// Reads without touching the mapping. Returns the bytes read.
  size_t read(uint64_t position, void* target, size_t bytes) const;

 private:
  std::string path_;
  int file_ = -1;
  size_t size_ = 0;
  char* data_ = nullptr;
};

}  // namespace fsdp2
