// What `fsdp2 plan` has found, as tables and as JSON.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugin/cli/command.hpp"
#include "plugin/cli/memory_search.hpp"
#include "plugin/cli/step_time.hpp"
#include "registry/plan.hpp"
#include "registry/rank_memory.hpp"
#include "registry/step_traffic.hpp"

namespace fsdp2::cli {

struct PlanReport {
  std::string config_warning;  // of reading the configuration
  std::vector<std::string> config_notes;
  Plan plan;
  std::string optimizer;
  RankMemory memory;
  int64_t ignored = 0;      // bytes of what `ignored_modules` leaves whole on every rank, with gradients and optimizer
  int64_t activations = 0;  // as given
  StepTraffic traffic;
  std::optional<StepTime> time;
  std::optional<int64_t> limit;  // of memory, as given
  std::vector<Alternative> alternatives;

  [[nodiscard]] int64_t peak() const { return memory.peak() + ignored + activations; }
  [[nodiscard]] bool fits() const { return !limit || peak() <= *limit; }
};

/// `every_unit`: one line each, else one for those that are alike.
std::string text_of(const PlanReport& report, bool every_unit);
Json json_of(const PlanReport& report);

}  // namespace fsdp2::cli
