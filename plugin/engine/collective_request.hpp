// A collective in flight whose failures name rank, operation and size, whatever the transport throws.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "plugin/engine/communicator.hpp"

namespace fsdp2 {

/// Runs `start`, which begins a collective and returns what its wait has to do. What either throws becomes an Error
/// (kCommunication): "rank 1: all_gather of 4096 bytes failed: ..."; an Error of another kind passes.
std::unique_ptr<Request> start_collective(int64_t rank, const char* operation, int64_t bytes,
                                          const std::function<std::function<void()>()>& start);

}  // namespace fsdp2
