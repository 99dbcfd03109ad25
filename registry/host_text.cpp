#include "registry/host_text.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace fsdp2 {
namespace {

Source start_of(const std::string& file) {
  Source source;
  source.file = file;
  return source;
}

Error too_long(const Source& source, const std::string& subject) {
  return error_at(
      source, source.key,
      subject + " is larger than " + std::to_string(kMostHostBytes >> 20U) + " MiB, which no configuration is");
}

/// As much as is allowed, and one more byte where there is more.
std::string read_some(std::istream& stream) {
  std::string text(kMostHostBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

/// How many bytes the UTF-8 character at `text` takes; 0: it is none.
size_t character_size(std::string_view text) {
  const auto byte = [&](size_t at) -> uint32_t { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  const uint32_t first = byte(0);
  if (first < 0x80) return first == 0 ? 0 : 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  const uint32_t second = byte(1);
  const bool too_small = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool too_large = first == 0xF4 && second >= 0x90;
  return too_small || surrogate || too_large ? 0 : size;
}

}  // namespace

std::string beside(const std::string& file, const std::string& path) {
  const size_t slash = file.rfind('/');
  if (path.starts_with('/') || slash == std::string::npos) return path;
  return file.substr(0, slash + 1) + path;
}

std::string read_host_file(const std::string& path, const Source& source, const std::string& key) {
  const bool is_source = path == source.file;  // which messages name already
  const std::string named = is_source ? "this" : "`" + path + "`";
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    throw error_at(source, key, named + " is a folder, not a file", {}, ErrorCode::kNotFound);
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text = read_some(stream);
  if (!stream.is_open() || stream.bad()) {
    throw error_at(source, key, "cannot read " + named + (is_source ? " file" : ""), {}, ErrorCode::kNotFound);
  }
  if (text.size() > kMostHostBytes) throw too_long(source, named + (is_source ? " file" : ""));
  return text;
}

std::string read_host_stream(std::istream& stream, const std::string& name) {
  std::string text = read_some(stream);
  if (stream.bad()) throw error_at(start_of(name), {}, "cannot be read", {}, ErrorCode::kNotFound);
  if (text.size() > kMostHostBytes) throw too_long(start_of(name), "the text");
  return text;
}

void check_host_text(std::string_view text, const std::string& file) {
  if (text.size() > kMostHostBytes) throw too_long(start_of(file), "the text");
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text.substr(at, 4));
    if (size == 0) {
      Source source = start_of(file);
      PlaceCounter(text).put(at, source);
      throw error_at(source, {}, "this is not text in UTF-8");
    }
    at += size;
  }
}

std::string without_broken_characters(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(std::string_view(text).substr(at, 4));
    if (size == 0) text[at] = '?';
    at += std::max<size_t>(size, 1);
  }
  return text;
}

void PlaceCounter::put(size_t offset, Source& source) {
  offset = std::min(offset, text_.size());
  for (; at_ < offset; ++at_) {
    if (text_[at_] != '\n') continue;
    ++line_;
    line_begin_ = at_ + 1;
  }
  source.line = line_;
  source.column = static_cast<int64_t>(offset - line_begin_) + 1;
}

}  // namespace fsdp2
