#include "adapters/config.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/detect.hpp"
#include "adapters/host_file.hpp"
#include "registry/keys.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2 {
namespace {

std::string beside(const std::string& file, const std::string& path) {
  const size_t slash = file.rfind('/');
  if (path.starts_with('/') || slash == std::string::npos) return path;
  return file.substr(0, slash + 1) + path;
}

std::string read_text(const std::string& path, const Source& source) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    throw error_at(source, "config", "`" + path + "` is a folder, not a file", {}, ErrorCode::kNotFound);
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(kLargestHostFile + 1, '\0');  // a device may have no end
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.eof()) {
    if (stream) check_size(text, path);
    throw error_at(source, "config", "cannot read `" + path + "`", {}, ErrorCode::kNotFound);
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

/// The dialect that the file's keys tell.
std::string told_dialect(std::string_view text, const std::string& path, const Source& source,
                         std::vector<std::string>& notes) {
  const DialectGuess guess = detect_dialect(text, path);
  if (guess.dialect.empty()) {
    throw error_at(
        source, "config",
        "`config` needs `dialect` beside it: it is not clear whose file `" + path + "` is: " + guess.explain());
  }
  notes.push_back(path + ": taken as the dialect " + guess.candidates.front().explain());
  return std::string(guess.dialect);
}

/// What other hosts read from the environment.
std::map<std::string, std::string> host_environment() {
  std::map<std::string, std::string> variables;
  if (const char* version = std::getenv("FSDP_VERSION")) variables["FSDP_VERSION"] = version;
  return variables;
}

Config combine(GivenKeys given, const std::string& name, const Extensions& extensions) {
  if (!given.contains("dialect") && !given.contains("config")) return resolve(given);
  const auto named = given.find("dialect");
  const auto written = given.find("config");
  if (written == given.end()) {
    throw error_at(named->second.source, "dialect", "`dialect` needs `config` beside it");
  }
  const std::string path = beside(name, std::get<std::string>(written->second.value));
  const Source& config_source = written->second.source;
  std::vector<std::string> notes;
  std::string text;
  Translate translate;
  if (named != given.end()) {
    translate =
        find_translation(std::get<std::string>(named->second.value), extensions.adapters(), named->second.source);
    text = read_text(path, config_source);
  } else {
    text = read_text(path, config_source);
    translate = find_translation(told_dialect(text, path, config_source, notes), extensions.adapters(), config_source);
  }
  TranslationContext context;
  context.environment = host_environment();
  if (const auto version = given.find("version"); version != given.end()) {
    context.version = std::get<int64_t>(version->second.value);
  }
  Translation translation = translate(text, path, context);
  notes.insert(notes.end(), translation.notes.begin(), translation.notes.end());
  // The other host's file is part of the options from here on.
  given.erase("dialect");
  given.erase("config");
  Config config = resolve(given, translation.given);
  config.warning = std::move(translation.warning);
  config.notes.insert(config.notes.begin(), notes.begin(), notes.end());
  return config;
}

void refuse_taken_dialect(const ExtensionAdapter& adapter, const Source& source) {
  for (const Adapter& built_in : adapters()) {
    if (built_in.dialect != adapter.table.dialect) continue;
    throw error_at(
        source, "plugins",
        adapter.library + ": its dialect \"" + adapter.table.dialect + "\" is one of this plugin; take another name",
        {}, ErrorCode::kInvalidArgument);
  }
}

Config load(GivenKeys given, const std::string& name) {
  Extensions extensions = open_extensions(given, name);
  const auto plugins = given.find("plugins");
  const Source source = plugins == given.end() ? Source{} : plugins->second.source;
  for (const ExtensionAdapter& adapter : extensions.adapters()) refuse_taken_dialect(adapter, source);
  Config config = combine(std::move(given), name, extensions);
  config.notes.insert(config.notes.begin(), extensions.notes().begin(), extensions.notes().end());
  config.extensions = std::move(extensions);
  return config;
}

}  // namespace

Config load_config(const std::string& toml_file, std::span<const std::string> overrides) {
  GivenKeys given = read_given_file(toml_file);
  apply_overrides(given, overrides);
  return load(std::move(given), toml_file);
}

Config load_config_text(std::string_view toml, const std::string& name, std::span<const std::string> overrides) {
  GivenKeys given = read_given(toml, name);
  apply_overrides(given, overrides);
  return load(std::move(given), name);
}

}  // namespace fsdp2
