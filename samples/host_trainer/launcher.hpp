// Starts the ranks of one machine and watches them.
#pragma once
#include <functional>

#include "samples/host_trainer/rank_environment.hpp"

namespace trainer {

/// Forks `ranks` processes that run `body`, and returns when none is left: 0, or the exit code for the one that died
/// first, which is named on stderr. The others get a few seconds to say what they noticed, then they are killed. Call
/// it before anything has started a thread: a forked child has only the thread that forked.
int launch(int ranks, const std::function<void(const RankEnvironment&)>& body);

}  // namespace trainer
