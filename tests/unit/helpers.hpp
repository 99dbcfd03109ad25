// Shared by the unit tests: errors as text, and small models made by hand.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/error.hpp"
#include "registry/module_tree.hpp"

namespace fsdp2::test {

/// The error a call throws. Fails the test if there is none.
template <typename Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::kInternal, "no error");
}

template <typename Call>
std::string text_of(Call call) {
  return error_of(call).what();
}

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// Gives the path back.
inline std::string write_file(const std::string& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  EXPECT_TRUE(stream.flush().good()) << path;
  return path;
}

inline std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

/// Adds modules in pre-order and parameters by the entry that holds them.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::string class_name = "Model") {
    TreeModule root;
    root.class_name = std::move(class_name);
    root.has_forward = true;
    tree_.modules.push_back(std::move(root));
  }

  size_t module(size_t parent, const std::string& name, const std::string& class_name, bool has_forward = true,
                std::optional<size_t> same_object_as = std::nullopt) {
    const size_t index = tree_.modules.size();
    TreeModule module;
    module.path = tree_.modules[parent].path.empty() ? name : tree_.modules[parent].path + "." + name;
    module.class_name = class_name;
    module.parent = parent;
    module.object = same_object_as.value_or(index);
    module.has_forward = has_forward;
    tree_.modules.push_back(std::move(module));
    return index;
  }

  size_t parameter(size_t holder, const std::string& name, std::vector<int64_t> shape, DType dtype = DType::kFloat32,
                   bool trainable = true) {
    TreeParameter parameter;
    parameter.names = {full_name(holder, name)};
    parameter.shape = std::move(shape);
    parameter.dtype = dtype;
    parameter.trainable = trainable;
    parameter.holders = {holder};
    parameter.readers = {holder};
    tree_.parameters.push_back(std::move(parameter));
    return tree_.parameters.size() - 1;
  }

  void tie(size_t parameter, size_t holder, const std::string& name) {
    tree_.parameters[parameter].names.push_back(full_name(holder, name));
    tree_.parameters[parameter].holders.push_back(holder);
    tree_.parameters[parameter].readers.push_back(holder);
  }

  TreeModule& entry(size_t module) { return tree_.modules[module]; }

  void read_by(size_t parameter, size_t reader) { tree_.parameters[parameter].readers.push_back(reader); }

  const ModuleTree& tree() const { return tree_; }

 private:
  std::string full_name(size_t holder, const std::string& name) const {
    const std::string& path = tree_.modules[holder].path;
    return path.empty() ? name : path + "." + name;
  }

  ModuleTree tree_;
};

/// Model { embed: Embedding, layers: ModuleList { 0, 1: Block { up, down: Linear } }, head: Linear }
inline TreeBuilder small_model() {
  TreeBuilder builder;
  const size_t embed = builder.module(0, "embed", "Embedding");
  builder.parameter(embed, "weight", {10, 8});
  const size_t layers = builder.module(0, "layers", "ModuleList", false);
  for (const char* name : {"0", "1"}) {
    const size_t block = builder.module(layers, name, "Block");
    const size_t up = builder.module(block, "up", "Linear");
    builder.parameter(up, "weight", {16, 8});
    builder.parameter(up, "bias", {16});
    const size_t down = builder.module(block, "down", "Linear");
    builder.parameter(down, "weight", {8, 16});
    builder.parameter(down, "bias", {8});
  }
  const size_t head = builder.module(0, "head", "Linear");
  builder.parameter(head, "weight", {10, 8});
  builder.parameter(head, "bias", {10});
  return builder;
}

}  // namespace fsdp2::test
