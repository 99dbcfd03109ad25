// The text of a host's configuration file, its own or of another host, before anything reads it.
#pragma once
#include <cstddef>
#include <istream>
#include <string>
#include <string_view>

#include "registry/given.hpp"

namespace fsdp2 {

/// Of a file, or of a list of keys. Whatever is larger is an error before it costs time or memory.
inline constexpr size_t kMostHostBytes = size_t{1} << 20;

/// A path that a file names: relative ones start at the folder of that file.
std::string beside(const std::string& file, const std::string& path);

/// Reads a file, at most as much of it as may be. `source` is where `key` names it, or in that file itself.
std::string read_host_file(const std::string& path, const Source& source, const std::string& key);

/// The same of a stream, called `name` in messages.
std::string read_host_stream(std::istream& stream, const std::string& name);

/// Text that is not UTF-8, has null bytes or is too long is an error at its place in `file`.
void check_host_text(std::string_view text, const std::string& file);

/// For messages that another library makes, which may quote a piece of a character: `?` in place of what is not UTF-8.
std::string without_broken_characters(std::string text);

/// Line and column, counted from 1 in bytes, of an offset. Offsets are asked for in rising order.
class PlaceCounter {
 public:
  explicit PlaceCounter(std::string_view text) : text_(text) {}
  void put(size_t offset, Source& source);

 private:
  std::string_view text_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int64_t line_ = 1;
};

}  // namespace fsdp2
