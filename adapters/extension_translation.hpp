// A translation by an adapter from outside.
#pragma once
#include "adapters/adapter.hpp"
#include "registry/extensions.hpp"

namespace fsdp2 {

/// What the adapter gives is taken as any adapter's keys are; its faults, and keys that there are not, are errors that
/// name it and its library.
Translate translation_by(const ExtensionAdapter& adapter);

}  // namespace fsdp2
