// The human sentence of an exception: without LibTorch's backtrace, without the source positions of LibTorch and Gloo.
#pragma once
#include <exception>
#include <string>

namespace fsdp2 {

std::string exception_text(const std::exception& error);

}  // namespace fsdp2
