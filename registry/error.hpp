// The one error type of the product: a code, a sentence, and where the fault lies.
#pragma once
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp2 {

/// Values are those of `fsdp2_code` in plugin.h.
enum class ErrorCode : int32_t {
  kInvalidArgument = 1,
  kConfig = 2,
  kNotFound = 3,
  kUnsupported = 4,
  kFailedPrecondition = 5,
  kVersionMismatch = 6,
  kAlreadyLoaded = 7,
  kCommunication = 8,
  kOutOfMemory = 9,
  kInternal = 10,
};

/// Where a fault lies. Empty or unset fields are unknown.
struct ErrorDetails {
  std::string file = {};
  std::optional<int64_t> line = {};    // from 1
  std::optional<int64_t> column = {};  // from 1
  std::string key = {};                // config key, as written
  std::string module = {};             // module path from the root
  std::string parameter = {};          // full parameter name
  std::optional<int64_t> rank = {};
  std::string nearest = {};  // the nearest valid name
};

/// Thrown inside the product; turned into a status at the C ABI. `what()` is the whole sentence for a person and
/// already contains the place ("train.toml:3:5: ...") and the nearest name ("did you mean ...?") where known.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, ErrorDetails details = {})
      : std::runtime_error(message), code_(code), details_(std::move(details)) {}

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const ErrorDetails& details() const { return details_; }

 private:
  ErrorCode code_;
  ErrorDetails details_;
};

}  // namespace fsdp2
