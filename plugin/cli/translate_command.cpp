// `fsdp2 translate`: another host's configuration as canonical TOML.
#include <iostream>
#include <memory>

#include "plugin/cli/command.hpp"
#include "plugin/cli/translated_file.hpp"
#include "plugin/cli/translation_report.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2::cli {
namespace {

constexpr const char* kTranslateExamples =
    "  fsdp2 translate accelerate.yaml > fsdp.toml\n"
    "  fsdp2 translate accelerate.yaml --to-version 2 --diff\n"
    "  fsdp2 translate ds_config.json --context num_processes=16 --context num_nodes=2\n"
    "  fsdp2 translate llm_foundry.yaml --dialect composer --env FSDP_VERSION=2\n"
    "  fsdp2 translate train.toml --dialect torchtitan -- --parallelism.data_parallel_shard_degree 4\n"
    "  env | grep -E '^(FSDP|ACCELERATE)_' | fsdp2 translate - --dialect accelerate\n"
    "The TOML goes to standard output, warning and notes to standard error. Exit status: 0 done; 1 FILE cannot be "
    "read\n"
    "or is at fault, or a library in --plugins is; 2 the command line is at fault.";

struct TranslateOptions {
  std::string file;
  std::string dialect;
  int64_t version = 0;
  std::vector<std::string> environment;
  bool uses_process_variables = false;
  std::vector<std::string> context;
  bool shows_difference = false;
  std::vector<std::string> flags;
  std::shared_ptr<std::vector<std::string>> plugins;
};

std::vector<HostKey> variables_of(const std::vector<std::string>& pairs) {
  std::vector<HostKey> variables;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || !is_variable(pair.substr(0, equals))) {
      throw CLI::ValidationError(
          "--env", "`" + pair + "` is not NAME=VALUE, with the name in capitals; keywords belong into FILE");
    }
    HostKey variable = host_key_of(pair);
    variable.source.override_text = "--env " + pair;
    variables.push_back(std::move(variable));
  }
  return variables;
}

/// Throws CLI::ValidationError where the command line is at fault.
TranslationRequest request_of(const TranslateOptions& options) {
  TranslationRequest request;
  request.file = options.file;
  request.dialect = options.dialect;
  if (options.version != 0) request.version = options.version;
  request.variables = variables_of(options.environment);
  request.uses_process_variables = options.uses_process_variables;
  try {
    request.ranks = read_rank_counts(options.context);
  } catch (const Error& error) {
    throw CLI::ValidationError("--context", error.what());
  }
  request.flags = options.flags;
  if (!request.flags.empty() && !request.flags.front().starts_with("--")) {
    throw CLI::ValidationError("FILE", "there can be one; the other host's flags come after `--`, and `" +
                                           request.flags.front() + "` is none");
  }
  request.plugins = *options.plugins;
  return request;
}

void print_translation(const TranslatedFile& file, const TranslateOptions& options, bool as_json) {
  if (as_json) return print(translation_json(file));
  for (const std::string& remark : file.remarks) std::cerr << "note: " << remark << "\n";
  if (!file.config.warning.empty()) std::cerr << "warning: " << file.config.warning << "\n";
  if (options.shows_difference) {
    std::cout << difference_text(file);
    return;
  }
  for (const std::string& note : file.config.notes) std::cerr << "note: " << note << "\n";
  std::cout << to_toml(file.config.options);
}

}  // namespace

void add_translate(CLI::App& program, Invocation& invocation) {
  CLI::App* command = add_command(program, invocation, "translate",
                                  "Print another host's configuration as this library's TOML", kTranslateExamples);
  const auto options = std::make_shared<TranslateOptions>();
  command
      ->add_option("FILE", options->file,
                   "another host's file, lines NAME=VALUE of its variables or keywords, a TOML file with [fsdp], or - "
                   "for standard input")
      ->required()
      ->type_name("");
  command
      ->add_option("FLAGS", options->flags,
                   "after --: the other host's own command line, which wins over FILE (torchtitan)")
      ->type_name("");
  command->add_option("--dialect", options->dialect, "whose FILE is (fsdp2 dialects); otherwise its keys tell")
      ->type_name("NAME");
  command
      ->add_option("--to-version", options->version, "the version to convert to: 2, or 1 where FILE is of that anyway")
      ->type_name("N")
      ->check(CLI::IsMember({1, 2}));
  command
      ->add_option("--env", options->environment,
                   "a variable that the other host would read; may be given again, and wins over FILE")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--use-env", options->uses_process_variables,
                    "the variables of this process count too; they never do otherwise");
  command
      ->add_option(
          "--context", options->context,
          "where it will run: num_processes, num_nodes or processes_per_node; may be given again, and wins over "
          "FILE")
      ->type_name("NAME=N")
      ->allow_extra_args(false);
  options->plugins = add_plugins_option(*command);
  command->add_flag("--diff", options->shows_difference,
                    "instead of the TOML, where each key comes from, and what changes or loses its meaning");
  command->callback([&invocation, options] {
    const TranslationRequest request = request_of(*options);
    invocation.run = [&invocation, options, request] {
      print_translation(translate_file(request), *options, invocation.json);
      return kDone;
    };
  });
}

}  // namespace fsdp2::cli
