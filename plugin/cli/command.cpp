#include "plugin/cli/command.hpp"

#include <iostream>

namespace fsdp2::cli {
namespace {

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kConfig:
      return "config";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kFailedPrecondition:
      return "failed_precondition";
    case ErrorCode::kVersionMismatch:
      return "version_mismatch";
    case ErrorCode::kAlreadyLoaded:
      return "already_loaded";
    case ErrorCode::kCommunication:
      return "communication";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

Exit refuse(const Invocation& invocation, const Error& error) {
  if (invocation.json) {
    print(json_of(error));
  } else {
    std::cerr << "fsdp2: " << error.what() << "\n";
  }
  return kRefused;
}

}  // namespace

Json json_of(const Error& error) {
  const ErrorDetails& details = error.details();
  Json json{{"code", name_of(error.code())}, {"message", error.what()}};
  if (!details.file.empty()) json["file"] = details.file;
  if (details.line) json["line"] = *details.line;
  if (details.column) json["column"] = *details.column;
  if (!details.key.empty()) json["key"] = details.key;
  if (!details.module.empty()) json["module"] = details.module;
  if (!details.parameter.empty()) json["parameter"] = details.parameter;
  if (!details.nearest.empty()) json["nearest"] = details.nearest;
  return Json{{"error", json}};
}

CLI::App* add_command(CLI::App& program, Invocation& invocation, const std::string& name, const std::string& help,
                      const std::string& examples) {
  CLI::App* command = program.add_subcommand(name, help);
  command->add_flag("--json", invocation.json, "for programs: one JSON object on standard output");
  command->footer("Examples:\n" + examples);
  return command;
}

std::shared_ptr<std::vector<std::string>> add_plugins_option(CLI::App& command) {
  auto plugins = std::make_shared<std::vector<std::string>>();
  command
      .add_option("--plugins", *plugins,
                  "a shared library with strategies or adapters; may be given again. Those in the environment variable "
                  "FSDP2_PLUGINS count too")
      ->type_name("LIB")
      ->allow_extra_args(false);
  return plugins;
}

Exit run(const Invocation& invocation) {
  try {
    return invocation.run();
  } catch (const Error& error) {
    return refuse(invocation, error);
  } catch (const CLI::ParseError& error) {
    std::cerr << error.what() << "\nRun with --help for more information.\n";
    return kMisused;
  } catch (const std::bad_alloc&) {
    return refuse(invocation, Error(ErrorCode::kOutOfMemory, "there is not enough memory"));
  } catch (const std::exception& error) {
    return refuse(invocation, Error(ErrorCode::kInternal, error.what()));
  }
}

void print(const Json& json) {
  // Names in a model or a file need not be UTF-8.
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace fsdp2::cli
