// Puts the operators into a copy of a method's graph.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace fsdp2 {

/// A method with the same name, schema and code. Its graph is compiled anew, with the callees that its classes have
/// then. Lives for ever, as executors cache functions by address.
torch::jit::GraphFunction* copy_method(torch::jit::Function& method);

/// Brackets the body of `graph` (a method's, not inlined) with the operators `pre` and `post`.
void bracket_with_operators(torch::jit::Graph& graph, std::span<const int64_t> written_inputs);

/// Methods `__getstate__` and `__setstate__` for the class, that refuse to serialize.
std::vector<torch::jit::GraphFunction*> make_refusing_state_methods(const c10::ClassTypePtr& type);

}  // namespace fsdp2
