#include "plugin/engine/exception_text.hpp"

#include <c10/util/Exception.h>

namespace fsdp2 {
namespace {

/// Gloo starts its texts with "[/build/path/pair.cc:534] ".
void drop_source_position(std::string& text) {
  if (text.empty() || text.front() != '[') return;
  const size_t end = text.find("] ");
  if (end == std::string::npos) return;
  const std::string position = text.substr(1, end - 1);
  const size_t colon = position.rfind(':');
  const bool names_a_line = colon != std::string::npos && colon + 1 < position.size() &&
                            position.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (names_a_line && position.find(".") != std::string::npos && position.find(".") < colon &&
      position.find('/') != std::string::npos) {
    text.erase(0, end + 2);
  }
}

}  // namespace

std::string exception_text(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  // Errors that were carried through another thread hold the backtrace in their text.
  if (const size_t trace = text.find("\nException raised from "); trace != std::string::npos) text.erase(trace);
  drop_source_position(text);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.empty() ? "unknown error" : text;
}

}  // namespace fsdp2
