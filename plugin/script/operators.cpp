#include "plugin/script/operators.hpp"

#include <torch/csrc/jit/runtime/custom_operator.h>

#include <mutex>

#include "plugin/engine/unit_call.hpp"
#include "plugin/engine/unit_table.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

using torch::jit::Stack;

void pre(Stack& stack) {
  const auto written = torch::jit::pop(stack).toIntVector();
  c10::IValue inputs = torch::jit::pop(stack);
  const c10::IValue self = torch::jit::pop(stack);
  c10::IValue call;
  std::shared_ptr<Unit> unit = find_unit(&self.toObjectRef());
  // A method that another method of the same object calls is part of that call.
  if (unit != nullptr && !unit->in_local_use()) unit->require_caller();
  if (unit != nullptr && !unit->is_open() && !unit->in_local_use()) {
    auto opened = c10::make_intrusive<UnitCall>(std::move(unit));
    inputs = opened->begin(std::move(inputs), written);
    call = c10::IValue::make_capsule(std::move(opened));
  }
  torch::jit::push(stack, std::move(inputs), std::move(call));
}

void post(Stack& stack) {
  const c10::IValue call = torch::jit::pop(stack);
  c10::IValue outputs = torch::jit::pop(stack);
  torch::jit::drop(stack, 1);
  if (call.isCapsule())
    outputs = c10::static_intrusive_pointer_cast<UnitCall>(call.toCapsule())->end(std::move(outputs));
  torch::jit::push(stack, std::move(outputs));
}

void refuse_save(Stack& stack) {
  const c10::IValue self = torch::jit::pop(stack);
  find_unit(&self.toObjectRef());  // throws for a module whose engine is gone
  const std::string name = self.toObjectRef().type()->name()->qualifiedName();
  throw Error(ErrorCode::kFailedPrecondition,
              "a module of class `" + name +
                  "` cannot be saved, cloned or pickled while it is sharded: its parameters " +
                  "are shards and its methods hold operators that only the plugin has. Call engine_detach() (C++: " +
                  "Engine::detach()) on every rank first, then save the module");
}

}  // namespace

void register_operators() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Conservative: the graph passes must neither drop, merge nor reorder them, nor move a read of an attribute across.
    constexpr auto kAlias = c10::AliasAnalysisKind::CONSERVATIVE;
    const auto add = [](const char* name, const char* arguments, void (*run)(Stack&)) {
      torch::jit::registerOperator(torch::jit::Operator(
          std::string(name) + arguments, [run](Stack& stack) { run(stack); }, kAlias));
    };
    add(kPreOperator, "(Any self, t inputs, int[] written) -> (t, Any)", &pre);
    add(kPostOperator, "(Any self, t outputs, Any call) -> t", &post);
    add(kRefuseSaveOperator, "(Any self) -> Tensor", &refuse_save);
  });
}

}  // namespace fsdp2
