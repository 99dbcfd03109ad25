// The status that crosses the C ABI, and the guard that turns every exception into one.
#pragma once
#include <fsdp2/plugin.h>

#include <string>

#include "registry/error.hpp"

namespace fsdp2 {

/// Never null; release with status_release().
fsdp2_status* make_status(ErrorCode code, std::string message, ErrorDetails details = {});

/// For use in a catch block; never null. Out of memory gives a static status, so that this cannot fail.
fsdp2_status* status_of_current_exception() noexcept;

/// Runs an entry's body. Null, or what it threw as a status: no exception leaves.
template <typename Action>
fsdp2_status* guard(const Action& action) noexcept {
  try {
    action();
    return nullptr;
  } catch (...) {
    return status_of_current_exception();
  }
}

// Entries of the table.
fsdp2_code status_code(const fsdp2_status* status) noexcept;
const char* status_message(const fsdp2_status* status) noexcept;
const char* status_detail(const fsdp2_status* status, const char* name) noexcept;
void status_release(fsdp2_status* status) noexcept;

}  // namespace fsdp2
