// Whether host and library fit together, and who uses the library: what initialize() and shutdown() decide.
#pragma once
#include <fsdp2/plugin.h>

#include <string>

namespace fsdp2 {

/// Checks that the host's LibTorch is the one this image is linked to and of the version it was built for, that no
/// other image of the plugin is active, registers the operators, and counts. Throws Error (kVersionMismatch,
/// kAlreadyLoaded).
void initialize(const fsdp2_host_info& host);

/// Takes one initialize back, and its log. Throws Error (kFailedPrecondition) when there is none left, or when it is
/// the last one and engines live.
void shutdown(const fsdp2_host_info& host);

/// Throws Error (kFailedPrecondition) outside initialize() ... shutdown(): LibTorch's identity is not proven there.
void require_initialized(const char* call);

/// To the log of the host that initialized last.
void log_to_host(bool warning, const std::string& text) noexcept;

/// Held by every engine: while one lives, the last shutdown fails.
class EngineCount {
 public:
  EngineCount();
  ~EngineCount();
  EngineCount(const EngineCount&) = delete;
  EngineCount& operator=(const EngineCount&) = delete;
};

}  // namespace fsdp2
