// The guard: what each kind of exception becomes. Linked with the product's objects; loads no library.
#include "plugin/abi/status.hpp"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "plugin/engine/exception_text.hpp"

namespace fsdp2::testing {
namespace {

template <typename Exception>
std::string guarded(const Exception& exception) {
  fsdp2_status* status = guard([&] { throw exception; });
  const std::string text = std::to_string(status_code(status)) + " " + status_message(status);
  status_release(status);
  return text;
}

TEST(Guard, SuccessIsNull) {
  EXPECT_EQ(guard([] {}), nullptr);
}

TEST(Guard, OurErrorsKeepCodeTextAndDetails) {
  ErrorDetails details;
  details.file = "train.toml";
  details.line = 3;
  details.column = 5;
  details.key = "strategi";
  details.nearest = "strategy";
  fsdp2_status* status = guard([&] { throw Error(ErrorCode::kConfig, "a sentence", details); });
  EXPECT_EQ(status_code(status), FSDP2_CONFIG);
  EXPECT_STREQ(status_message(status), "a sentence");
  EXPECT_STREQ(status_detail(status, "file"), "train.toml");
  EXPECT_STREQ(status_detail(status, "line"), "3");
  EXPECT_STREQ(status_detail(status, "column"), "5");
  EXPECT_STREQ(status_detail(status, "key"), "strategi");
  EXPECT_STREQ(status_detail(status, "nearest"), "strategy");
  for (const char* unknown : {"module", "parameter", "rank", "no such detail"}) {
    EXPECT_EQ(status_detail(status, unknown), nullptr) << unknown;
  }
  EXPECT_EQ(status_detail(status, nullptr), nullptr);
  status_release(status);
}

TEST(Guard, TorchErrorsKeepTheSentenceOnly) {
  const auto fault = [] { TORCH_CHECK(false, "expected a tensor"); };
  fsdp2_status* status = guard(fault);
  EXPECT_EQ(status_code(status), FSDP2_INTERNAL);
  EXPECT_STREQ(status_message(status), "expected a tensor");
  status_release(status);
}

TEST(Guard, KindsOfTorchErrorsHaveCodes) {
  const c10::SourceLocation here{"", "", 0};
  EXPECT_EQ(guarded(c10::DistBackendError(here, "the peer has gone")), "8 the peer has gone");
  EXPECT_EQ(guarded(c10::OutOfMemoryError(here, "the device is full")), "9 the device is full");
  EXPECT_EQ(guarded(c10::Error(here, "DefaultCPUAllocator: can't allocate memory: 9 bytes")),
            "9 DefaultCPUAllocator: can't allocate memory: 9 bytes");
}

TEST(Guard, EverythingElseIsInternal) {
  EXPECT_EQ(guarded(std::runtime_error("a fault")), "10 a fault");
  EXPECT_EQ(guarded(std::runtime_error("")), "10 unknown error");
  EXPECT_EQ(guarded(7), "10 an exception of an unknown type was thrown");
}

TEST(Guard, OutOfMemoryNeedsNoMemoryAndMayBeReleasedAgainAndAgain) {
  fsdp2_status* first = guard([] { throw std::bad_alloc(); });
  fsdp2_status* second = guard([] { throw std::bad_alloc(); });
  EXPECT_EQ(first, second);
  EXPECT_EQ(status_code(first), FSDP2_OUT_OF_MEMORY);
  status_release(first);
  status_release(second);
  EXPECT_STREQ(status_message(first), "out of memory");
}

TEST(ExceptionText, DropsPositionsAndBacktraces) {
  const auto text = [](const std::string& what) { return exception_text(std::runtime_error(what)); };
  EXPECT_EQ(text("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:5"),
            "Connection closed by peer [127.0.0.1]:5");
  EXPECT_EQ(text("[127.0.0.1] is not there"), "[127.0.0.1] is not there");
  EXPECT_EQ(text("a fault\nException raised from f at g.cpp:3 (most recent call first):\nframe #0"), "a fault");
}

}  // namespace
}  // namespace fsdp2::testing
