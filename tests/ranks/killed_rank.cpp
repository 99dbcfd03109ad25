// A rank that is killed, leaves, or stops: every other rank ends in bounded time with an error that says where it was.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <sstream>

#include "tests/ranks/harness/rank_pool.hpp"
#include "tests/ranks/language_models.hpp"

namespace fsdp2::testing {
namespace {

const LanguageModel kModel{"lm", "Block"};
constexpr int64_t kLost = 1;
constexpr double kBound = 10;

// Collectives of a step, from 0: gathers of the root and of layers 0, 1, 2; then gather and reduction of layers 2, 1,
// 0. A reduction is waited for when the next one starts, and nothing else comes between those of layer 0 and the root.
constexpr size_t kGatherInForward = 2;      // of layers.1
constexpr size_t kReductionInBackward = 9;  // of layers.0

/// One good step, then a step in which rank kLost does `fault` in the place of collective `at`.
CaseFunction step_with(size_t at, std::function<void()> fault, double timeout_s = 60) {
  return [at, fault = std::move(fault), timeout_s](RankContext& context) {
    auto communicator = context.new_communicator(timeout_s);
    auto module = load(context, kModel.file);
    Sharding sharding = by_layer(kModel);
    sharding.prefetch = {0, 0};  // one collective at a time, so that it is known which one fails
    const auto sharded = shard(context, module, sharding, communicator);
    next_token_loss(module, 0, context.rank()).backward();
    communicator->forget();
    if (context.rank() == kLost) {
      communicator->before([at, fault](Collective, size_t before) {
        if (before == at) fault();
      });
    }
    next_token_loss(module, 1, context.rank()).backward();
  };
}

/// Survivors must name the unit, the operation and their own rank.
Judge survivors_say(const std::string& unit, const std::string& operation, int signal,
                    const std::string& lost_says = {}) {
  return [=](const std::vector<Outcome>& outcomes) {
    std::ostringstream faults;
    for (size_t r = 0; r < outcomes.size(); ++r) {
      const Outcome& outcome = outcomes[r];
      const auto wants = [&](bool good, const std::string& what) {
        if (!good)
          faults << "rank " << r << ": " << what << "; it ended after " << outcome.seconds
                 << " s with: " << outcome.text << "\n";
      };
      if (static_cast<int64_t>(r) == kLost) {
        wants(outcome.signal == signal, "wrong signal");
        wants(outcome.text.find(lost_says) != std::string::npos, "should say " + lost_says);
        continue;
      }
      wants(outcome.kind == Outcome::Kind::kReported, "should have reported an error");
      wants(outcome.seconds < kBound, "took too long");
      wants(outcome.text.find("threw: ") == 0, "should have thrown");
      wants(outcome.text.find(unit) != std::string::npos, "should name the unit " + unit);
      wants(outcome.text.find(operation) != std::string::npos, "should name the operation, " + operation);
      wants(outcome.text.find("rank " + std::to_string(r)) != std::string::npos, "should name its own rank");
    }
    return faults.str();
  };
}

const bool added = [] {
  const auto add = [](const char* name, CaseFunction run, Judge judge, std::vector<int64_t> worlds = {2}) {
    add_case(__FILE__, __LINE__, "KilledRank", name, std::move(run), std::move(worlds), 60, std::move(judge));
  };
  const auto kill = [] { ::raise(SIGKILL); };
  const auto leave = [] { ::_exit(3); };
  const auto stop = [] { ::sleep(5); };
  add("killed_in_forward", step_with(kGatherInForward, kill), survivors_say("layers.1", "gather", SIGKILL), {2, 4});
  add("killed_in_backward", step_with(kReductionInBackward, kill), survivors_say("layers.0", "reduc", SIGKILL), {2, 4});
  add("exits_in_forward", step_with(kGatherInForward, leave), survivors_say("layers.1", "gather", 0, "status 3"));
  add("exits_in_backward", step_with(kReductionInBackward, leave), survivors_say("layers.0", "reduc", 0, "status 3"));
  const auto throws = [] { throw std::runtime_error("host fault"); };
  add("throws_in_forward", step_with(kGatherInForward, throws), survivors_say("layers.1", "gather", 0, "host fault"));
  add("throws_in_backward", step_with(kReductionInBackward, throws),
      survivors_say("layers.0", "reduc", 0, "host fault"));
  add("stops_in_forward", step_with(kGatherInForward, stop, 2), survivors_say("layers.1", "gather", 0));
  add("stops_in_backward", step_with(kReductionInBackward, stop, 2), survivors_say("layers.0", "reduc", 0));
  return true;
}();

}  // namespace
}  // namespace fsdp2::testing
