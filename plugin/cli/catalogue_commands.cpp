// `fsdp2 strategies` and `fsdp2 dialects`: what can be named in a configuration, and where it comes from.
#include <iostream>
#include <memory>

#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "plugin/cli/command.hpp"
#include "registry/registry.hpp"
#include "registry/text_table.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2::cli {
namespace {

struct Entry {
  std::string name;
  std::string library;  // empty: built in
  std::string help;
  std::vector<std::string> options;  // of a strategy's own
};

std::string text_or_nothing(const char* text) {
  return text == nullptr ? "" : text;
}

std::vector<Entry> strategy_entries(const Extensions& extensions) {
  std::vector<Entry> entries;
  for (const Strategy& strategy : strategies()) {
    entries.push_back({std::string(strategy.name), "", std::string(strategy.help), {}});
  }
  for (const ExtensionStrategy& strategy : extensions.strategies()) {
    const fsdp2_strategy& table = strategy.table;
    entries.push_back({table.name, strategy.library, text_or_nothing(table.help), {}});
    for (size_t i = 0; i < table.option_count; ++i) entries.back().options.emplace_back(table.option_names[i]);
  }
  return entries;
}

std::vector<Entry> dialect_entries(const Extensions& extensions) {
  std::vector<Entry> entries;
  for (const Adapter& adapter : adapters()) {
    entries.push_back({std::string(adapter.dialect), "", std::string(adapter.help), {}});
  }
  for (const ExtensionAdapter& adapter : extensions.adapters()) {
    entries.push_back({adapter.table.dialect, adapter.library, text_or_nothing(adapter.table.help), {}});
  }
  return entries;
}

std::string help_of(const Entry& entry) {
  std::string text = entry.help;
  for (const std::string& option : entry.options) {
    const bool is_first = &option == entry.options.data();
    text += (!is_first ? ", " : text.empty() ? "strategy_options: " : "; strategy_options: ") + option;
  }
  return text;
}

using EntriesOf = std::vector<Entry> (*)(const Extensions& extensions);

struct Catalogue {
  std::string plural;
  std::string singular;
  std::string help_column;
  EntriesOf entries_of;
};

void print_catalogue(const Catalogue& catalogue, const std::vector<Entry>& entries, bool as_json) {
  if (!as_json) {
    std::vector<TextRow> rows{{catalogue.singular, "from", catalogue.help_column}};
    for (const Entry& entry : entries) {
      rows.push_back({entry.name, entry.library.empty() ? "built in" : entry.library, help_of(entry)});
    }
    std::cout << aligned(rows);
    return;
  }
  Json list = Json::array();
  for (const Entry& entry : entries) {
    Json row{{"name", entry.name}, {"library", entry.library}, {"help", entry.help}};
    if (entry.library.empty()) row["library"] = nullptr;
    if (!entry.options.empty()) row["options"] = entry.options;
    list.push_back(row);
  }
  print(Json{{catalogue.plural, list}});
}

void add_catalogue(CLI::App& program, Invocation& invocation, const std::string& help, const Catalogue& catalogue) {
  const std::string call = "  fsdp2 " + catalogue.plural;
  CLI::App* command =
      add_command(program, invocation, catalogue.plural, help,
                  call + "\n" + call + " --plugins ./libmine.so\n" + call + " --config train.toml --json");
  const auto plugins = add_plugins_option(*command);
  const auto config = std::make_shared<std::string>();
  command->add_option("--config", *config, "a TOML file: the libraries in `plugins` of its [fsdp] are opened")
      ->type_name("FILE");
  command->callback([&invocation, catalogue, plugins, config] {
    invocation.run = [&invocation, catalogue, plugins, config] {
      GivenKeys given = config->empty() ? GivenKeys{} : read_given_file(*config);
      const Extensions extensions = open_libraries(given, *config, *plugins);
      print_catalogue(catalogue, catalogue.entries_of(extensions), invocation.json);
      return kDone;
    };
  });
}

}  // namespace

void add_strategies(CLI::App& program, Invocation& invocation) {
  add_catalogue(program, invocation, "List the strategies that TOML can name",
                {"strategies", "strategy", "what it does", strategy_entries});
}

void add_dialects(CLI::App& program, Invocation& invocation) {
  add_catalogue(program, invocation, "List the hosts whose configurations are read",
                {"dialects", "dialect", "what it reads", dialect_entries});
}

}  // namespace fsdp2::cli
