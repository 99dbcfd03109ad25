#include "plugin/cli/model_file.hpp"

#include "plugin/checkpoint/module_archive.hpp"
#include "plugin/script/bound_tree.hpp"

namespace fsdp2::cli {

ModuleTree read_model_file(const std::string& path) {
  return read_module_tree(ModuleArchive(path).module()).tree;
}

}  // namespace fsdp2::cli
