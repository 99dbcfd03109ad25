#include "plugin/engine/collective_request.hpp"

#include <string>
#include <utility>

#include "plugin/engine/exception_text.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// What a failure message begins with: "rank 1: all_gather of 4096 bytes".
struct Operation {
  int64_t rank;
  std::string text;

  /// Runs `action`; whatever it throws becomes a communication error with this operation in front.
  template <typename Action>
  auto run(const Action& action) const {
    try {
      return action();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCommunication) throw;
      fail(error.what());
    } catch (const std::exception& error) {
      fail(exception_text(error));
    } catch (...) {
      fail("unknown error");
    }
  }

  [[noreturn]] void fail(const std::string& cause) const {
    ErrorDetails details;
    details.rank = rank;
    throw Error(ErrorCode::kCommunication, text + " failed: " + cause, std::move(details));
  }
};

class CollectiveRequest final : public Request {
 public:
  CollectiveRequest(Operation operation, std::function<void()> finish)
      : operation_(std::move(operation)), finish_(std::move(finish)) {}

  void wait() override {
    if (!finish_) return;
    const auto finish = std::exchange(finish_, nullptr);
    operation_.run(finish);
  }

 private:
  Operation operation_;
  std::function<void()> finish_;
};

}  // namespace

std::unique_ptr<Request> start_collective(int64_t rank, const char* operation, int64_t bytes,
                                          const std::function<std::function<void()>()>& start) {
  Operation name{rank, "rank " + std::to_string(rank) + ": " + operation + " of " + std::to_string(bytes) + " bytes"};
  auto finish = name.run(start);
  return std::make_unique<CollectiveRequest>(std::move(name), std::move(finish));
}

}  // namespace fsdp2
