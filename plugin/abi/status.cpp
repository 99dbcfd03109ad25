#include "plugin/abi/status.hpp"

#include <c10/util/Exception.h>

#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "plugin/engine/exception_text.hpp"

namespace fsdp2 {
namespace {

/// Needs no memory of its own (the text is short enough to lie inside the string), and is never destroyed.
fsdp2_status* out_of_memory_status() noexcept {
  union Forever {
    Forever() : status{ErrorCode::kOutOfMemory, "out of memory", {}, {}, {}, {}} {}
    ~Forever() {}
    fsdp2_status status;
  };
  static Forever forever;
  return &forever.status;
}

std::string text_of(const std::optional<int64_t>& number) {
  return number ? std::to_string(*number) : std::string();
}

ErrorCode code_of(const c10::Error& error) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return ErrorCode::kCommunication;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return ErrorCode::kOutOfMemory;
  // The CPU allocator throws a plain error.
  if (std::strstr(error.what_without_backtrace(), "can't allocate memory") != nullptr) return ErrorCode::kOutOfMemory;
  return ErrorCode::kInternal;
}

/// May throw std::bad_alloc.
fsdp2_status* translate_current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return make_status(error.code(), error.what(), error.details());
  } catch (const c10::Error& error) {
    return make_status(code_of(error), exception_text(error));
  } catch (const std::bad_alloc&) {
    return out_of_memory_status();
  } catch (const std::exception& error) {
    return make_status(ErrorCode::kInternal, exception_text(error));
  } catch (...) {
    return make_status(ErrorCode::kInternal, "an exception of an unknown type was thrown");
  }
}

}  // namespace

fsdp2_status* make_status(ErrorCode code, std::string message, ErrorDetails details) {
  std::string line = text_of(details.line);
  std::string column = text_of(details.column);
  std::string rank = text_of(details.rank);
  return new fsdp2_status{code,           std::move(message), std::move(details), std::move(line), std::move(column),
                          std::move(rank)};
}

fsdp2_status* status_of_current_exception() noexcept {
  try {
    return translate_current_exception();
  } catch (...) {
    return out_of_memory_status();
  }
}

fsdp2_code status_code(const fsdp2_status* status) noexcept {
  return status == nullptr ? FSDP2_OK : static_cast<fsdp2_code>(status->code);
}

const char* status_message(const fsdp2_status* status) noexcept {
  return status == nullptr ? "" : status->message.c_str();
}

const char* status_detail(const fsdp2_status* status, const char* name) noexcept {
  if (status == nullptr || name == nullptr) return nullptr;
  const auto known = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  const std::string_view wanted = name;
  if (wanted == "file") return known(status->details.file);
  if (wanted == "line") return known(status->line);
  if (wanted == "column") return known(status->column);
  if (wanted == "key") return known(status->details.key);
  if (wanted == "module") return known(status->details.module);
  if (wanted == "parameter") return known(status->details.parameter);
  if (wanted == "rank") return known(status->rank);
  if (wanted == "nearest") return known(status->details.nearest);
  return nullptr;
}

void status_release(fsdp2_status* status) noexcept {
  if (status != out_of_memory_status()) delete status;
}

}  // namespace fsdp2
