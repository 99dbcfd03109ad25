// A group made from the environment that a launcher sets (fsdp2/launch_environment.hpp).
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "plugin/engine/c10d_communicator.hpp"

namespace fsdp2 {

/// `backend`: "gloo", "nccl", or "" = by `device`, that of the parameters. Collective where there is more than one
/// rank. `timeout`: for the meeting of the ranks and for each collective (zero: 30 minutes). Throws Error:
/// kInvalidArgument names the variables that are missing, wrong or contradict one another, kUnsupported a backend this
/// build has not, kCommunication when the ranks do not meet.
std::shared_ptr<Communicator> communicator_from_environment(const std::string& backend, c10::Device device,
                                                            Timeout timeout);

}  // namespace fsdp2
