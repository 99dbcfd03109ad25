// A collective that knows what it is for: ranks in other ones are told apart where the transport can, and a rank that
// has waited in vain says where the others are.
#pragma once
#include <c10/util/FunctionRef.h>

#include <string>

#include "plugin/engine/communicator.hpp"

namespace fsdp2 {

/// Runs `collective`, announced as `what` ("unit `layers.0`"). An Error (kCommunication) gets `what` in front, and what
/// the other ranks were in behind it where that can be known. Collective.
void communicate(Communicator& communicator, const std::string& what, c10::function_ref<void()> collective);

}  // namespace fsdp2
