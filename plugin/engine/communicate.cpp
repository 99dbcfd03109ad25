#include "plugin/engine/communicate.hpp"

#include <chrono>
#include <utility>

#include "registry/error.hpp"

namespace fsdp2 {

void communicate(Communicator& communicator, const std::string& what, c10::function_ref<void()> collective) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kAtOnce = std::chrono::milliseconds(500);  // a peer is gone: nobody needs to be asked
  const auto began = Clock::now();
  try {
    communicator.announce(what);
    collective();
  } catch (const Error& error) {
    std::string text = what + ": " + error.what();
    if (error.code() == ErrorCode::kCommunication && Clock::now() - began > kAtOnce) {
      const std::string others = communicator.whereabouts(what);
      if (!others.empty()) text += " (meanwhile " + others + ")";
    }
    ErrorDetails details = error.details();
    details.rank = communicator.world_rank();
    throw Error(error.code(), text, std::move(details));
  }
}

}  // namespace fsdp2
