// Before anything is cut: can all ranks start, and do they hold the same model, plan and weights?
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "plugin/engine/communicator.hpp"
#include "plugin/engine/named_tensor.hpp"
#include "registry/module_tree.hpp"
#include "registry/plan.hpp"

namespace fsdp2 {

/// `tensors`: one a parameter of the tree. Throws the same fsdp2::Error (kFailedPrecondition) on every rank, naming a
/// rank that differs from rank 0 and, for weights, the first parameter that does, or one that has called
/// report_no_start(). Two all-gathers of a few bytes a parameter. Where the plan says that rank 0's values count, they
/// are sent into the others' tensors and `buffers` instead of being compared. Parameters that the plan ignores count as
/// buffers. Nothing to do for one rank.
void check_same_start(Communicator& communicator, ModuleTree tree, const Plan& plan, std::vector<at::Tensor> tensors,
                      std::vector<NamedTensor> buffers = {});

/// In place of check_same_start(), on a rank that has found a fault of its own: the others end now and need not wait.
/// `device`: that of the parameters. Does not throw where the others are gone.
void report_no_start(Communicator& communicator, c10::Device device) noexcept;

}  // namespace fsdp2
