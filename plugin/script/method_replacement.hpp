// Which classes have their methods replaced, for which engines.
#pragma once
#include <ATen/core/class_type.h>

#include <set>
#include <vector>

namespace fsdp2 {

/// Replaces the methods of classes for as long as it lives. Every class in a module tree gets new methods, since
/// executors inline and cache what a method calls; those of unit classes are bracketed with the operators. Engines over
/// modules of the same classes share one replacement, the last to go puts the originals back. Thread-safe; no graph of
/// these classes may run meanwhile.
class MethodReplacement {
 public:
  MethodReplacement(std::vector<c10::ClassTypePtr> classes, const std::set<const c10::ClassType*>& unit_classes);
  ~MethodReplacement();
  MethodReplacement(const MethodReplacement&) = delete;
  MethodReplacement& operator=(const MethodReplacement&) = delete;

 private:
  std::vector<c10::ClassTypePtr> classes_;
};

}  // namespace fsdp2
