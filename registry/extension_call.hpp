// Calls of a library from outside, and calls that come back from it: nothing thrown gets through its frames unseen.
#pragma once
#include <fsdp2/extension.h>

#include <exception>
#include <string>

#include "registry/error.hpp"

namespace fsdp2 {

/// The first fault of the calls that come back; it counts when the library has returned.
class FirstFault {
 public:
  template <typename Body>
  void record(Body body) noexcept {
    try {
      body();
    } catch (...) {
      if (!fault_) fault_ = std::current_exception();
    }
  }

  void rethrow() const {
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  std::exception_ptr fault_;
};

/// Runs a function of the library. What it throws, what it reported and a result that is not 0 become errors, which the
/// caller gives a name.
template <typename Call>
void call_extension(Call call, const FirstFault& fault) {
  int32_t result = 0;
  try {
    result = call();
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInternal, "it threw an exception: " + std::string(error.what()));
  } catch (...) {
    throw Error(ErrorCode::kInternal, "it threw an exception of an unknown type");
  }
  fault.rethrow();
  if (result != 0) throw Error(ErrorCode::kInternal, "it returned " + std::to_string(result) + " without a reason");
}

/// A code as a library gives it.
inline ErrorCode code_from(fsdp2_code code) {
  return code > FSDP2_OK && code <= FSDP2_INTERNAL ? static_cast<ErrorCode>(code) : ErrorCode::kInternal;
}

/// A text that may be null.
inline std::string text_or(const char* text, const char* otherwise) {
  return text == nullptr ? otherwise : text;
}

}  // namespace fsdp2
