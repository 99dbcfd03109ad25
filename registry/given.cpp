#include "registry/given.hpp"

#include <utility>

#include "registry/nearest_name.hpp"

namespace fsdp2 {

std::string place(const Source& source) {
  if (!source.override_text.empty()) return "override `" + source.override_text + "`: ";
  if (source.file.empty()) return {};
  std::string text = source.file + ":";
  if (source.line > 0) text += std::to_string(source.line) + ":" + std::to_string(source.column) + ":";
  return text + " ";
}

Error error_at(const Source& source, const std::string& key, const std::string& sentence, const std::string& nearest,
               ErrorCode code) {
  ErrorDetails details;
  details.file = source.file;
  if (source.line > 0) {
    details.line = source.line;
    details.column = source.column;
  }
  details.key = key;
  details.nearest = nearest;
  return Error(code, place(source) + sentence + did_you_mean(nearest), std::move(details));
}

}  // namespace fsdp2
