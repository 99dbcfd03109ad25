// `fsdp2 strategies` and `fsdp2 dialects`: what can be named in a configuration.
#include <iostream>
#include <memory>

#include "adapters/adapters.hpp"
#include "plugin/cli/command.hpp"
#include "registry/registry.hpp"
#include "registry/text_table.hpp"

namespace fsdp2::cli {
namespace {

constexpr const char* kBuiltIn = "built in";

}  // namespace

void add_strategies(CLI::App& program, Invocation& invocation) {
  CLI::App* command =
      add_command(program, invocation, "strategies", "List the strategies that TOML can name", "  fsdp2 strategies");
  command->callback([&invocation] {
    invocation.run = [] {
      std::vector<TextRow> rows{{"strategy", "from", "what it does"}};
      for (const Strategy& strategy : strategies()) {
        rows.push_back({std::string(strategy.name), kBuiltIn, std::string(strategy.help)});
      }
      std::cout << aligned(rows);
      return kDone;
    };
  });
}

void add_dialects(CLI::App& program, Invocation& invocation) {
  CLI::App* command =
      add_command(program, invocation, "dialects", "List the hosts whose configurations are read", "  fsdp2 dialects");
  command->callback([&invocation] {
    invocation.run = [] {
      std::vector<TextRow> rows{{"dialect", "from", "what it reads"}};
      for (const Adapter& adapter : adapters()) {
        rows.push_back({std::string(adapter.dialect), kBuiltIn, std::string(adapter.help)});
      }
      std::cout << aligned(rows);
      return kDone;
    };
  });
}

}  // namespace fsdp2::cli
