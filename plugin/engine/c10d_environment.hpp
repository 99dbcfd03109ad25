// A group made from the environment that torchrun and its relatives set: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "plugin/engine/c10d_communicator.hpp"

namespace fsdp2 {

/// `backend`: "gloo", "nccl", or "" = by `device`, that of the parameters. Collective when WORLD_SIZE is above 1; a
/// world of 1 needs neither address nor port. `timeout`: for the meeting of the ranks and for each collective (zero: 30
/// minutes). Throws Error: kInvalidArgument names the variable that is missing or wrong, kUnsupported a backend this
/// build has not, kCommunication when the ranks do not meet.
std::shared_ptr<Communicator> communicator_from_environment(const std::string& backend, c10::Device device,
                                                            Timeout timeout);

}  // namespace fsdp2
