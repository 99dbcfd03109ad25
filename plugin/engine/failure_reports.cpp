#include "plugin/engine/failure_reports.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace fsdp2 {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(1500);  // ranks that wait for each other fail at nearly one time
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr size_t kMostRanks = 64;  // in one message

using Reports = std::vector<std::optional<std::string>>;

Reports collect(c10d::Store& store, const std::string& prefix, int64_t rank, int64_t world, const std::string& own) {
  const auto key = [&](int64_t of) { return prefix + std::to_string(of); };
  store.set(key(rank), std::vector<uint8_t>(own.begin(), own.end()));
  Reports reports(static_cast<size_t>(world));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (bool missing = true; missing && std::chrono::steady_clock::now() < deadline;) {
    missing = false;
    for (int64_t r = 0; r < world; ++r) {
      auto& report = reports[static_cast<size_t>(r)];
      if (r == rank || report) continue;
      if (store.check({key(r)})) {
        const auto bytes = store.get(key(r));
        report.emplace(bytes.begin(), bytes.end());
      } else {
        missing = true;
      }
    }
    if (missing) std::this_thread::sleep_for(kPause);
  }
  return reports;
}

std::string text_of(const Reports& reports, int64_t rank) {
  std::string text;
  for (size_t r = 0; r < reports.size() && r < kMostRanks; ++r) {
    if (static_cast<int64_t>(r) == rank) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(r) +
            (reports[r] ? " was in " + *reports[r] : std::string(" left no word: it is outside the engine, or gone"));
  }
  return text;
}

}  // namespace

FailureReports::FailureReports(c10::intrusive_ptr<c10d::Store> store, std::string group, int64_t rank, int64_t world)
    : store_(std::move(store)), prefix_("fsdp2_failed/" + std::move(group) + "/"), rank_(rank), world_(world) {}

std::string FailureReports::exchange(const std::string& own) const noexcept {
  if (!store_ || world_ == 1 || told_->exchange(true)) return "";
  try {
    // A store whose server is gone may block for minutes: then nobody waits for this thread.
    auto done = std::make_shared<std::promise<Reports>>();
    auto result = done->get_future();
    std::thread([done, own, store = store_, prefix = prefix_, rank = rank_, world = world_] {
      try {
        done->set_value(collect(*store, prefix, rank, world, own));
      } catch (...) {
        done->set_exception(std::current_exception());
      }
    }).detach();
    if (result.wait_for(2 * kPatience) != std::future_status::ready) return "";
    return text_of(result.get(), rank_);
  } catch (...) {
    return "";  // the failure itself is what counts
  }
}

}  // namespace fsdp2
