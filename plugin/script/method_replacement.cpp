#include "plugin/script/method_replacement.hpp"

#include <map>
#include <mutex>

#include "plugin/script/instrument.hpp"
#include "plugin/script/written_inputs.hpp"

namespace fsdp2 {
namespace {

using torch::jit::Function;

struct Method {
  Function* original;
  std::vector<int64_t> written_inputs;
};

struct ReplacedClass {
  std::vector<Method> methods;
  bool is_unit_class = false;
  int engines = 0;
};

struct ClassTable {
  std::mutex mutex;
  std::map<const c10::ClassType*, ReplacedClass> classes;
};

// Leaked on purpose: destructors at exit may run after LibTorch's own.
ClassTable& class_table() {
  static ClassTable& instance = *new ClassTable;
  return instance;
}

bool is_state_method(const Function& method) {
  return method.name() == "__getstate__" || method.name() == "__setstate__";
}

void remove_methods(c10::ClassType& type) {
  const std::vector<Function*> present = type.methods();
  for (const Function* method : present) type.unsafeRemoveMethod(method->name());
}

ReplacedClass describe(const c10::ClassType& type) {
  ReplacedClass result;
  for (Function* method : type.methods()) result.methods.push_back({method, {}});
  return result;
}

void install(const c10::ClassTypePtr& type, const ReplacedClass& replaced) {
  remove_methods(*type);
  for (const Method& method : replaced.methods) {
    if (is_state_method(*method.original)) continue;
    auto* copy = copy_method(*method.original);
    if (replaced.is_unit_class) bracket_with_operators(*copy->graph(), method.written_inputs);
    type->addMethod(copy);
  }
  for (auto* method : make_refusing_state_methods(type)) type->addMethod(method);
}

}  // namespace

MethodReplacement::MethodReplacement(std::vector<c10::ClassTypePtr> classes,
                                     const std::set<const c10::ClassType*>& unit_classes)
    : classes_(std::move(classes)) {
  std::lock_guard lock(class_table().mutex);
  // First everything that may fail, on a copy. Analysis reads callees, so it comes before any method is replaced; where
  // an engine has replaced some already, their operators write to nothing that it would count.
  std::map<const c10::ClassType*, ReplacedClass> updated;
  bool changes = false;
  for (const auto& type : classes_) {
    const auto known = class_table().classes.find(type.get());
    ReplacedClass& replaced = updated[type.get()];
    replaced = known == class_table().classes.end() ? describe(*type) : known->second;
    changes |= replaced.engines++ == 0;
    if (!unit_classes.contains(type.get()) || replaced.is_unit_class) continue;
    changes = true;
    replaced.is_unit_class = true;
    for (Method& method : replaced.methods) {
      if (!is_state_method(*method.original)) method.written_inputs = written_inputs(*method.original);
    }
  }
  for (auto& [type, replaced] : updated) class_table().classes[type] = std::move(replaced);
  if (!changes) return;
  for (const auto& type : classes_) install(type, class_table().classes.at(type.get()));
}

MethodReplacement::~MethodReplacement() {
  std::lock_guard lock(class_table().mutex);
  for (const auto& type : classes_) {
    auto found = class_table().classes.find(type.get());
    if (--found->second.engines > 0) continue;
    remove_methods(*type);
    for (const Method& method : found->second.methods) type->addMethod(method.original);
    class_table().classes.erase(found);
  }
}

}  // namespace fsdp2
