// What the commands of the program `fsdp2` have in common.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "registry/error.hpp"

namespace fsdp2::cli {

/// Keys are printed in the order in which they are set.
using Json = nlohmann::ordered_json;

/// How the program ends.
enum Exit : int {
  kDone = 0,
  kRefused = 1,  // the input is at fault, or the answer is no
  kMisused = 2,  // the command line is at fault
};

/// The command that was chosen. Commands print their result to standard output, remarks to standard error.
struct Invocation {
  std::function<Exit()> run;
  bool json = false;  // for programs: one JSON object on standard output
};

/// A subcommand with the options that all have. `examples`: lines that `--help` ends with.
CLI::App* add_command(CLI::App& program, Invocation& invocation, const std::string& name, const std::string& help,
                      const std::string& examples);

/// Adds `--plugins LIB`, the libraries of strategies and adapters. The list is filled when the command line is read.
std::shared_ptr<std::vector<std::string>> add_plugins_option(CLI::App& command);

/// Runs it; a CLI::ParseError, where the command line turns out to be at fault, is printed as any. Another error is,
/// with `--json` as {"error": {...}} to standard output.
Exit run(const Invocation& invocation);

/// {"error": {...}}
Json json_of(const Error& error);

/// To standard output, with two blanks of indent.
void print(const Json& json);

// The commands. Each adds itself to the program.
void add_strategies(CLI::App& program, Invocation& invocation);
void add_dialects(CLI::App& program, Invocation& invocation);
void add_plan(CLI::App& program, Invocation& invocation);
void add_translate(CLI::App& program, Invocation& invocation);
void add_inspect(CLI::App& program, Invocation& invocation);

}  // namespace fsdp2::cli
