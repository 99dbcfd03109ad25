// The program `fsdp2`: reads configurations and models and plans, without ranks and without weights.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "plugin/cli/command.hpp"
#include "registry/nearest_name.hpp"

namespace {

/// "did you mean --world?" for the first word that is no option, of the command that was named.
std::string suggestion(const CLI::App& program, int argc, char** argv) {
  std::vector<std::string> names;
  const CLI::App* command = &program;
  for (const CLI::App* chosen : program.get_subcommands()) command = chosen;
  const auto add_options = [&](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  };
  add_options(*command);
  for (const CLI::App* group : command->get_subcommands({})) {
    if (group->get_name().empty()) add_options(*group);
  }
  if (command == &program) {
    for (const CLI::App* other : program.get_subcommands({})) names.push_back(other->get_name());
  }
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (word == "--") break;  // what follows is another program's
    const bool is_name = word.starts_with("--") || command == &program;
    if (!is_name || std::find(names.begin(), names.end(), word) != names.end()) continue;
    const std::string nearest = fsdp2::nearest_name(word, names);
    if (!nearest.empty()) return "Did you mean " + nearest + "?\n";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace fsdp2::cli;
  CLI::App program(
      "Reads configurations, models and plans of sharded training; needs no ranks and no weights.\n"
      "Exit status: 0 done; 1 the input is at fault, or the answer is no; 2 the command line is at fault.",
      "fsdp2");
  program.require_subcommand(1);
  Invocation invocation;
  add_inspect(program, invocation);
  add_plan(program, invocation);
  add_translate(program, invocation);
  add_strategies(program, invocation);
  add_dialects(program, invocation);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_help = error.get_exit_code() == 0;
    program.exit(error);
    if (!is_help) std::cerr << suggestion(program, argc, argv);
    return is_help ? kDone : kMisused;
  }
  return run(invocation);
}
