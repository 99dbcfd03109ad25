// What a class's methods do with attributes: the GetAttr chains and the SetAttr nodes in their graphs.
#pragma once
#include <ATen/core/class_type.h>

#include <string>
#include <vector>

namespace fsdp2 {

/// `self.<a>.<b>.<attribute>`; not a submodule.
struct AttributeUse {
  std::vector<std::string> submodules;
  std::string attribute;
};

struct AttributeUses {
  std::vector<AttributeUse> reads;
  std::vector<AttributeUse> writes;  // and those that hold what may be filled: a list that is appended to
};

/// Whether values of the type are modules, seen as their class or through an interface.
bool is_module(const c10::TypePtr& type);

/// Uses in the methods of a class, not counting those in methods of its submodules.
AttributeUses attribute_uses(const c10::ClassType& type);

/// Uses in the hooks around its forward, which run in its caller.
AttributeUses hook_attribute_uses(const c10::ClassType& type);

}  // namespace fsdp2
