// From a TorchScript module to the tree that planning reads, and to the slots that the engine fills.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <vector>

#include "plugin/engine/slot.hpp"
#include "registry/error.hpp"
#include "registry/module_tree.hpp"

namespace fsdp2 {

struct BoundTree {
  ModuleTree tree;
  std::vector<c10::intrusive_ptr<c10::ivalue::Object>> objects;  // one a tree module
  std::vector<std::vector<Slot>> slots;                          // one list a tree parameter, each place once
  std::vector<std::vector<Slot>> written_attributes;             // one list a tree module: what its methods write
  std::vector<std::optional<CodePlace>> forks;                   // one a tree module: the fork that it runs in, if any
};

/// Reads names, shapes, ties, readers and calls; changes nothing. Readers come from the graphs: whoever reads a
/// parameter, itself or through a chain of submodules, in any of its methods; for its hooks, its parent. A parameter is
/// also found where a plain attribute or a list of tensors holds it (the flat weights of an LSTM). Throws fsdp2::Error
/// (kUnsupported), naming the parameter, for tensors that cannot be cut: not contiguous, sparse, quantized, on the meta
/// device, of an element type without a name here; where parameters lie on several devices; for those whose memory
/// another tensor of the module shares, or that lie in a dict, a tuple or an object; and, naming the module, where
/// torch.jit.freeze has left no parameters.
BoundTree read_module_tree(const torch::jit::Module& module);

/// The same without throwing: all that it would throw is added to `refusals`. A parameter of an element type without a
/// name here is left out.
BoundTree read_module_tree(const torch::jit::Module& module, std::vector<Error>& refusals);

}  // namespace fsdp2
