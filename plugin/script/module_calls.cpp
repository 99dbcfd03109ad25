#include "plugin/script/module_calls.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <string>
#include <unordered_map>

#include "plugin/script/attribute_uses.hpp"
#include "plugin/script/node_place.hpp"
#include "plugin/script/operators.hpp"

namespace fsdp2 {
namespace {

namespace jit = torch::jit;

using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

/// Values of a graph that are modules, with their entries in the tree.
using ModuleIndices = std::unordered_map<const jit::Value*, size_t>;

std::string below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

bool is_own_operator(const jit::Node& node) {
  static const std::set<c10::Symbol> own{c10::Symbol::fromQualString(kPreOperator),
                                         c10::Symbol::fromQualString(kPostOperator),
                                         c10::Symbol::fromQualString(kRefuseSaveOperator)};
  return own.contains(node.kind());
}

class Walk {
 public:
  Walk(const ModuleTree& tree, std::span<const ObjectPtr> objects)
      : tree_(tree),
        objects_(objects),
        calls_{std::vector<bool>(tree.modules.size()), std::vector<std::optional<CodePlace>>(tree.modules.size())} {
    for (size_t m = 0; m < tree.modules.size(); ++m) by_path_.emplace(tree.modules[m].path, m);
  }

  ModuleCalls from_root() {
    for (size_t m = 0; m < tree_.modules.size();) m = enter(m) ? end_of(m) : m + 1;
    for (size_t m = 0; m < tree_.modules.size(); ++m) {
      calls_.called[m] = calls_.called[tree_.modules[m].object];
      calls_.forks[m] = calls_.forks[tree_.modules[m].object];
    }
    return std::move(calls_);
  }

 private:
  struct Visit {
    const jit::Function* function;
    size_t self;
    bool forked;
    auto operator<=>(const Visit&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
  };

  // In what follows `fork` is the node of the fork that is being looked into, null outside of forks.

  /// Everything of a module that a host may call. False if there is nothing, as in a container.
  bool enter(size_t m) {
    const auto type = objects_[m]->type();
    std::vector<jit::Function*> functions = type->methods();
    std::erase_if(functions, [](const jit::Function* method) { return method->name().starts_with("__"); });
    if (functions.empty()) return false;
    functions.insert(functions.end(), type->getForwardPreHooks().begin(), type->getForwardPreHooks().end());
    functions.insert(functions.end(), type->getForwardHooks().begin(), type->getForwardHooks().end());
    mark(m, nullptr);
    for (jit::Function* function : functions) run(*function, m, nullptr);
    return true;
  }

  void run(jit::Function& function, size_t self, const jit::Node* fork) {
    if (!function.isGraphFunction() || !seen_.insert({&function, self, fork != nullptr}).second) return;
    auto& graph_function = jit::toGraphFunction(function);
    graph_function.ensure_defined();
    const std::shared_ptr<jit::Graph> graph = graph_function.graph();
    ModuleIndices modules{{graph->inputs().front(), self}};
    walk(*graph->block(), modules, fork);
  }

  void walk(const jit::Block& block, ModuleIndices& modules, const jit::Node* fork) {
    for (const jit::Node* node : block.nodes()) visit(*node, modules, fork);
    for (const jit::Value* output : block.outputs()) hand_on(output, modules, fork);
  }

  void visit(const jit::Node& node, ModuleIndices& modules, const jit::Node* fork) {
    const auto inputs = node.inputs();
    if (node.kind() == c10::prim::GetAttr) {
      read(node, modules);
    } else if (node.kind() == c10::prim::SetAttr) {
      hand_on(inputs[1], modules, fork);
    } else if (node.kind() == c10::prim::CallMethod) {
      call(node, modules, fork);
      for (const jit::Value* argument : inputs.slice(1)) hand_on(argument, modules, fork);
    } else if (node.kind() == c10::prim::fork) {
      const std::shared_ptr<jit::Graph>& graph = node.g(c10::attr::Subgraph);
      ModuleIndices inner;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (const auto module = modules.find(inputs[i]); module != modules.end()) {
          inner.emplace(graph->inputs()[i], module->second);
        }
      }
      walk(*graph->block(), inner, fork != nullptr ? fork : &node);
    } else if (!is_own_operator(node)) {
      for (const jit::Value* input : inputs) hand_on(input, modules, fork);
    }
    for (const jit::Block* inner : node.blocks()) walk(*inner, modules, fork);
  }

  void read(const jit::Node& node, ModuleIndices& modules) const {
    const auto owner = modules.find(node.input());
    if (owner == modules.end() || !is_module(node.output()->type())) return;
    const auto part = by_path_.find(below(tree_.modules[owner->second].path, node.s(c10::attr::name)));
    if (part != by_path_.end()) modules.emplace(node.output(), part->second);
  }

  // By the object's own class: the receiver may be typed as an interface.
  void call(const jit::Node& node, const ModuleIndices& modules, const jit::Node* fork) {
    const auto receiver = modules.find(node.inputs()[0]);
    if (receiver == modules.end()) return;
    mark(receiver->second, fork);
    const auto type = objects_[receiver->second]->type();
    const std::string& name = node.s(c10::attr::name);
    jit::Function* callee = type->findMethod(name);
    if (callee == nullptr) callee = type->findHook(name);
    if (callee != nullptr) run(*callee, receiver->second, fork);
  }

  void hand_on(const jit::Value* value, const ModuleIndices& modules, const jit::Node* fork) {
    const auto module = modules.find(value);
    if (module == modules.end()) return;
    for (size_t m = module->second; m < end_of(module->second); ++m) mark(m, fork);
  }

  void mark(size_t m, const jit::Node* fork) {
    const size_t object = tree_.modules[m].object;
    calls_.called[object] = true;
    if (fork != nullptr && !calls_.forks[object]) calls_.forks[object] = place_of(*fork);
  }

  /// One past the last entry at or below m.
  [[nodiscard]] size_t end_of(size_t m) const {
    const std::string prefix = below(tree_.modules[m].path, "");
    size_t end = m + 1;
    while (end < tree_.modules.size() && tree_.modules[end].path.starts_with(prefix)) ++end;
    return end;
  }

  const ModuleTree& tree_;
  std::span<const ObjectPtr> objects_;
  ModuleCalls calls_;
  std::unordered_map<std::string, size_t> by_path_;
  std::set<Visit> seen_;
};

}  // namespace

ModuleCalls module_calls(const ModuleTree& tree, std::span<const ObjectPtr> objects) {
  return Walk(tree, objects).from_root();
}

}  // namespace fsdp2
