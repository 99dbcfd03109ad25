#include "registry/module_tree.hpp"

namespace fsdp2 {

Error frozen_error(const TreeModule& module) {
  const CodePlace place = module.frozen.value_or(CodePlace{});
  return Error(ErrorCode::kUnsupported,
               (module.path.empty() ? std::string("the module") : "`" + module.path + "`") +
                   " was frozen by torch.jit.freeze" + in_brackets(place) +
                   ": its parameters are constants, which cannot be sharded or trained; save it without freezing it",
               {.file = place.file, .line = place.line, .module = module.path});
}

Error no_dimensions_error(const ModuleTree& tree, const TreeParameter& parameter) {
  return Error(ErrorCode::kUnsupported,
               "parameter `" + parameter.names.front() +
                   "` has no dimensions and cannot be cut: make it a tensor of one dimension with one element",
               {.module = tree.modules[parameter.holders.front()].path, .parameter = parameter.names.front()});
}

}  // namespace fsdp2
