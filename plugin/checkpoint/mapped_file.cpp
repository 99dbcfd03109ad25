#include "plugin/checkpoint/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "registry/error.hpp"

namespace fsdp2 {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw Error(ErrorCode::kNotFound, path + ": " + std::strerror(errno), {.file = path});
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) fail(path_);
  struct stat status {};
  int reason = 0;
  std::string unfit;
  void* mapping = MAP_FAILED;
  if (::fstat(file_, &status) != 0) {
    reason = errno;
  } else if (!S_ISREG(status.st_mode)) {
    unfit = "is not a regular file";
  } else if (status.st_size == 0) {
    unfit = "is empty";
  } else {
    size_ = static_cast<size_t>(status.st_size);
    mapping = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file_, 0);
    reason = errno;
  }
  if (mapping == MAP_FAILED) {
    ::close(file_);
    if (!unfit.empty()) throw Error(ErrorCode::kInvalidArgument, path_ + " " + unfit, {.file = path_});
    errno = reason;
    fail(path_);
  }
  data_ = static_cast<char*>(mapping);
  ::madvise(data_, size_, MADV_RANDOM);  // no read-ahead into weights that nobody wants
}

MappedFile::~MappedFile() {
  ::munmap(data_, size_);
  ::close(file_);
}

size_t MappedFile::read(uint64_t position, void* target, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        ::pread(file_, static_cast<char*>(target) + done, bytes - done, static_cast<off_t>(position + done));
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

}  // namespace fsdp2
