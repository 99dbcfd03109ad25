// How the engine speaks to a person.
#pragma once
#include <functional>
#include <string>

namespace fsdp2 {

/// Receives remarks for the host; `warning` is false for information.
using LogFunction = std::function<void(bool warning, const std::string& text)>;

}  // namespace fsdp2
