// Where a class's methods read attributes: the GetAttr chains in their graphs.
#pragma once
#include <ATen/core/class_type.h>

#include <string>
#include <vector>

namespace fsdp2 {

/// An attribute that is read as `self.<a>.<b>.<attribute>`.
struct AttributeRead {
  std::vector<std::string> submodules;
  std::string attribute;
};

/// All reads of tensors in the methods of a class, not counting those in methods of its submodules.
std::vector<AttributeRead> attribute_reads(const c10::ClassType& type);

}  // namespace fsdp2
