#include "plugin/abi/status.hpp"

#include <c10/util/Exception.h>

#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "plugin/abi/handles.hpp"
#include "plugin/engine/exception_text.hpp"

namespace fsdp2 {
namespace {

/// What a status stands for; the texts that a host reads live as long.
struct HeldStatus {
  ErrorCode code;
  std::string message;
  ErrorDetails details;
  std::string line;  // the numbers as text
  std::string column;
  std::string rank;
};
using StatusHandles = Handles<fsdp2_status, const HeldStatus>;

/// Needs no memory of its own (the text is short enough to lie inside the string), and is never destroyed.
const HeldStatus& out_of_memory() noexcept {
  union Forever {
    Forever() : status{ErrorCode::kOutOfMemory, "out of memory", {}, {}, {}, {}} {}
    ~Forever() {}
    HeldStatus status;
  };
  static Forever forever;
  return forever.status;
}

/// In no table: its address is its handle.
fsdp2_status* out_of_memory_status() noexcept {
  return reinterpret_cast<fsdp2_status*>(const_cast<HeldStatus*>(&out_of_memory()));
}

/// Null for a status that does not live.
std::shared_ptr<const HeldStatus> find_status(const fsdp2_status* status) noexcept {
  if (status == out_of_memory_status()) return {std::shared_ptr<void>(), &out_of_memory()};
  return StatusHandles::live().find(status);
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
  return StatusHandles::live().add(std::make_shared<HeldStatus>(
      HeldStatus{code, std::move(message), std::move(details), std::move(line), std::move(column), std::move(rank)}));
}

fsdp2_status* status_of_current_exception() noexcept {
  try {
    return translate_current_exception();
  } catch (...) {
    return out_of_memory_status();
  }
}

fsdp2_code status_code(const fsdp2_status* status) noexcept {
  if (status == nullptr) return FSDP2_OK;
  const auto held = find_status(status);
  return held ? static_cast<fsdp2_code>(held->code) : FSDP2_INVALID_ARGUMENT;
}

const char* status_message(const fsdp2_status* status) noexcept {
  if (status == nullptr) return "";
  const auto held = find_status(status);
  return held ? held->message.c_str() : "the status is no live handle: it was released, or is of another kind";
}

const char* status_detail(const fsdp2_status* status, const char* name) noexcept {
  const auto held = find_status(status);
  if (!held || name == nullptr) return nullptr;
  const auto known = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  const std::string_view wanted = name;
  if (wanted == "file") return known(held->details.file);
  if (wanted == "line") return known(held->line);
  if (wanted == "column") return known(held->column);
  if (wanted == "key") return known(held->details.key);
  if (wanted == "module") return known(held->details.module);
  if (wanted == "parameter") return known(held->details.parameter);
  if (wanted == "rank") return known(held->rank);
  if (wanted == "nearest") return known(held->details.nearest);
  return nullptr;
}

void status_release(fsdp2_status* status) noexcept {
  StatusHandles::live().remove(status);
}

}  // namespace fsdp2
