#include "plugin/script/forked_modules.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <set>
#include <unordered_map>

#include "plugin/script/attribute_uses.hpp"

namespace fsdp2 {
namespace {

namespace jit = torch::jit;

// Values that are modules, with their path below the class that is looked at.
using ModulePaths = std::unordered_map<const jit::Value*, std::string>;

std::string below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

class Search {
 public:
  void method(jit::Function& function, const std::string& path, bool forked) {
    if (!function.isGraphFunction()) return;
    if (!seen_.insert({&function, path, forked}).second) return;
    auto& graph_function = jit::toGraphFunction(function);
    graph_function.ensure_defined();
    const std::shared_ptr<jit::Graph> graph = graph_function.graph();
    ModulePaths modules{{graph->inputs().front(), path}};
    block(*graph->block(), modules, forked);
  }

  [[nodiscard]] std::vector<std::string> found() const { return {found_.begin(), found_.end()}; }

 private:
  struct Visit {
    const jit::Function* function;
    std::string path;
    bool forked;
    auto operator<=>(const Visit&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
  };

  void block(const jit::Block& block_of, ModulePaths& modules, bool forked) {
    for (const jit::Node* node : block_of.nodes()) visit(*node, modules, forked);
  }

  void visit(const jit::Node& node, ModulePaths& modules, bool forked) {
    if (node.kind() == c10::prim::GetAttr && is_module(node.output()->type())) {
      if (const auto owner = modules.find(node.input()); owner != modules.end()) {
        modules.emplace(node.output(), below(owner->second, node.s(c10::attr::name)));
      }
    } else if (node.kind() == c10::prim::CallMethod) {
      call(node, modules, forked);
    } else if (node.kind() == c10::prim::fork) {
      const std::shared_ptr<jit::Graph>& graph = node.g(c10::attr::Subgraph);
      ModulePaths inner;
      for (size_t i = 0; i < node.inputs().size(); ++i) {
        if (const auto module = modules.find(node.inputs()[i]); module != modules.end()) {
          inner.emplace(graph->inputs()[i], module->second);
        }
      }
      block(*graph->block(), inner, /*forked=*/true);
    }
    for (const jit::Block* inner : node.blocks()) block(*inner, modules, forked);
  }

  void call(const jit::Node& node, const ModulePaths& modules, bool forked) {
    const auto receiver = modules.find(node.inputs()[0]);
    const auto type = node.inputs()[0]->type()->cast<c10::ClassType>();
    if (receiver == modules.end() || !type) return;
    if (forked) found_.insert(receiver->second);
    if (jit::Function* callee = type->findMethod(node.s(c10::attr::name))) method(*callee, receiver->second, forked);
  }

  std::set<Visit> seen_;
  std::set<std::string> found_;
};

}  // namespace

std::vector<std::string> forked_modules(const c10::ClassType& type) {
  Search search;
  for (jit::Function* method : type.methods()) search.method(*method, "", /*forked=*/false);
  return search.found();
}

}  // namespace fsdp2
