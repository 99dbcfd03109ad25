// The errors that cases expect.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "registry/error.hpp"

namespace fsdp2::testing {

/// The text of an Error, with what it names.
struct Refusal {
  std::string text;
  ErrorDetails details;
};
inline Refusal refusal_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return {error.what(), error.details()};
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an fsdp2::Error: " << error.what();
  }
  return {};
}

inline std::string text_of_fault(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace fsdp2::testing
