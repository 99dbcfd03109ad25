// The options of fsdp2-train.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace trainer {

struct CommandLine {
  std::string config;
  std::vector<std::string> sets;
  int nproc = 0;  // 0 = not given
  std::string metrics;
  std::string plugin;
  std::string save;
  std::string backend;  // "gloo", "nccl" or "" = by the device
  bool plan = false;
  bool unsharded = false;
};

/// The options, or the exit code of a program that is done already (--help, or a mistake that was named on stderr).
struct ParsedCommandLine {
  CommandLine options;
  std::optional<int> exit_code;
};
ParsedCommandLine parse_command_line(int argc, char** argv);

}  // namespace trainer
