#include "registry/extensions.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace fsdp2 {
namespace {

Error misfit(const std::string& sentence, ErrorCode code = ErrorCode::kInvalidArgument) {
  return Error(code, sentence);
}

std::string in_quotes(const char* name) {
  return "\"" + std::string(name) + "\"";
}

bool is_empty(const char* text) {
  return text == nullptr || *text == '\0';
}

std::string with_help(const char* name, const char* help) {
  return in_quotes(name) + (is_empty(help) ? "" : " (" + std::string(help) + ")");
}

fsdp2_extension_get_function open_library(const std::string& path) {
  // It stays: plans and configurations point into it. Local: its symbols are nobody else's.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const std::string reason = dlerror();
    std::error_code unknown;
    const bool exists = std::filesystem::exists(path, unknown);
    throw misfit("cannot be loaded: " + reason, exists ? ErrorCode::kInvalidArgument : ErrorCode::kNotFound);
  }
  void* symbol = dlsym(library, FSDP2_EXTENSION_GET_SYMBOL);
  if (symbol == nullptr) throw misfit("is no extension: it does not export " FSDP2_EXTENSION_GET_SYMBOL);
  return reinterpret_cast<fsdp2_extension_get_function>(symbol);
}

const fsdp2_extension* table_of(fsdp2_extension_get_function get) {
  const std::string ours = std::to_string(FSDP2_ABI_MAJOR);
  const fsdp2_extension* given = nullptr;
  try {
    given = get(FSDP2_ABI_MAJOR);
  } catch (...) {
    throw misfit("its " FSDP2_EXTENSION_GET_SYMBOL " threw an exception");
  }
  if (given == nullptr) {
    throw misfit("has no table for ABI " + ours + ": rebuild it with this plugin's fsdp2/extension.h",
                 ErrorCode::kVersionMismatch);
  }
  if (given->struct_size >= offsetof(fsdp2_extension, name) && given->abi_major != FSDP2_ABI_MAJOR) {
    throw misfit("speaks ABI " + std::to_string(given->abi_major) + "." + std::to_string(given->abi_minor) +
                     ", this plugin " + ours + "." + std::to_string(FSDP2_ABI_MINOR) +
                     ": rebuild it with this plugin's fsdp2/extension.h",
                 ErrorCode::kVersionMismatch);
  }
  return given;
}

/// Prefixes keep the names of libraries apart; those of versions are for strategies of this one.
void check_full_name(const char* name) {
  const std::string_view text = name;
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == text.size()) {
    throw misfit("its strategy " + in_quotes(name) + " needs a prefix of its own, as in \"acme.by_bytes\"");
  }
  const std::string_view prefix = text.substr(0, dot);
  if (prefix == "fsdp1" || prefix == "fsdp2") {
    throw misfit("its strategy " + in_quotes(name) +
                 " has the prefix of this plugin's own strategies; take another one");
  }
}

/// Throws Error where a name is taken, with the library that has it.
void check_free(const auto& registered, const char* name, const std::string& kind, const auto& name_of) {
  const auto found =
      std::find_if(registered.begin(), registered.end(), [&](const auto& other) { return name_of(other) == name; });
  if (found == registered.end()) return;
  throw misfit("its " + kind + " " + in_quotes(name) + " is registered already, by " + found->library);
}

}  // namespace

void Extensions::open(const std::string& path, const Source& source) {
  try {
    const fsdp2_extension* given = table_of(open_library(path));
    if (std::find(libraries_.begin(), libraries_.end(), given) != libraries_.end()) return;
    take(read_struct(given, "fsdp2_extension"), path);
    libraries_.push_back(given);
  } catch (const Error& error) {
    throw error_at(source, "plugins", path + ": " + error.what(), {}, error.code());
  }
}

void Extensions::take(const fsdp2_extension& extension, const std::string& path) {
  if (is_empty(extension.name)) throw misfit("its fsdp2_extension has no name");
  if (extension.strategy_count > 0) require_argument(extension.strategies, "fsdp2_extension.strategies");
  if (extension.adapter_count > 0) require_argument(extension.adapters, "fsdp2_extension.adapters");
  std::string note = "plugins: " + std::string(extension.name);
  if (!is_empty(extension.version)) note += " " + std::string(extension.version);
  note += " (" + path + ") registers";
  for (size_t i = 0; i < extension.strategy_count; ++i) {
    add(extension.strategies[i], path);
    note += (i == 0 ? " strategy " : ", ") + with_help(strategies_.back().table.name, strategies_.back().table.help);
  }
  for (size_t i = 0; i < extension.adapter_count; ++i) {
    add(extension.adapters[i], path);
    note += (i == 0 ? " dialect " : ", ") + with_help(adapters_.back().table.dialect, adapters_.back().table.help);
  }
  if (extension.strategy_count + extension.adapter_count == 0) note += " nothing";
  notes_.push_back(note);
}

void Extensions::add(const fsdp2_strategy* given, const std::string& path) {
  const fsdp2_strategy strategy = read_struct(given, "fsdp2_strategy");
  if (is_empty(strategy.name)) throw misfit("one of its strategies has no name");
  check_full_name(strategy.name);
  check_free(strategies_, strategy.name, "strategy",
             [](const ExtensionStrategy& other) { return std::string_view(other.table.name); });
  if (strategy.plan == nullptr) throw misfit("its strategy " + in_quotes(strategy.name) + " has no function `plan`");
  if (strategy.option_count > 0) require_argument(strategy.option_names, "fsdp2_strategy.option_names");
  for (size_t i = 0; i < strategy.option_count; ++i) {
    require_argument(strategy.option_names[i], "an entry of fsdp2_strategy.option_names");
  }
  strategies_.push_back({strategy, path});
}

void Extensions::add(const fsdp2_adapter* given, const std::string& path) {
  const fsdp2_adapter adapter = read_struct(given, "fsdp2_adapter");
  if (is_empty(adapter.dialect)) throw misfit("one of its adapters has no dialect");
  check_free(adapters_, adapter.dialect, "dialect",
             [](const ExtensionAdapter& other) { return std::string_view(other.table.dialect); });
  if (adapter.translate == nullptr) {
    throw misfit("its adapter " + in_quotes(adapter.dialect) + " has no function `translate`");
  }
  adapters_.push_back({adapter, path});
}

const ExtensionStrategy* Extensions::find_strategy(std::string_view full_name) const {
  const auto found = std::find_if(strategies_.begin(), strategies_.end(),
                                  [&](const ExtensionStrategy& strategy) { return strategy.table.name == full_name; });
  return found == strategies_.end() ? nullptr : &*found;
}

std::string library_path(const std::string& path, const std::string& folder) {
  std::error_code unknown;
  const std::filesystem::path file =
      std::filesystem::absolute(std::filesystem::path(folder) / path, unknown).lexically_normal();
  if (path.find('/') == std::string::npos && !std::filesystem::exists(file, unknown)) return path;
  return file.string();
}

Extensions open_extensions(GivenKeys& given, const std::string& file) {
  Extensions extensions;
  if (const auto found = given.find("plugins"); found != given.end()) {
    const std::string folder = std::filesystem::path(file).parent_path().string();
    for (std::string& path : std::get<std::vector<std::string>>(found->second.value)) {
      path = library_path(path, folder);
      extensions.open(path, found->second.source);
    }
  }
  const char* listed = std::getenv("FSDP2_PLUGINS");  // NOLINT(concurrency-mt-unsafe)
  std::istringstream paths(listed == nullptr ? "" : listed);
  Source variable;
  variable.file = "FSDP2_PLUGINS";
  for (std::string path; std::getline(paths, path, ':');) {
    if (!path.empty()) extensions.open(library_path(path, {}), variable);
  }
  return extensions;
}

}  // namespace fsdp2
