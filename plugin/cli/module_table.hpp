// The tree of a model's modules as a table for a person.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plugin/cli/module_summary.hpp"

namespace fsdp2::cli {

struct TableLimits {
  std::optional<size_t> depth;  // levels below the root; unset: all
  bool all = false;             // equal modules side by side each by itself
};

std::string module_table(const ModelFacts& facts, const std::vector<ModuleSummary>& summaries,
                         const TableLimits& limits);

/// "float32, int64"
std::string dtypes_text(const std::set<DType>& dtypes);

}  // namespace fsdp2::cli
