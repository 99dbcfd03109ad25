#include "adapters/config.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "adapters/adapters.hpp"
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
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw error_at(source, "config", "cannot read `" + path + "`", {}, ErrorCode::kNotFound);
  return text;
}

const std::string& text_of(const GivenKeys& given, std::string_view key, std::string_view other) {
  const auto found = given.find(key);
  if (found == given.end()) {
    const auto present = given.find(other);
    throw error_at(present->second.source, std::string(other),
                   "`" + std::string(other) + "` needs `" + std::string(key) + "` beside it");
  }
  return std::get<std::string>(found->second.value);
}

Config combine(GivenKeys given, const std::string& name, const Extensions& extensions) {
  if (!given.contains("dialect") && !given.contains("config")) return resolve(given);
  const std::string& dialect = text_of(given, "dialect", "config");
  const std::string path = beside(name, text_of(given, "config", "dialect"));
  const Source& source = given.at("dialect").source;
  TranslationContext context;
  if (const auto version = given.find("version"); version != given.end()) {
    context.version = std::get<int64_t>(version->second.value);
  }
  const Translate translate = find_translation(dialect, extensions.adapters(), source);
  Translation translation = translate(read_text(path, given.at("config").source), path, context);
  // The other host's file is part of the options from here on.
  given.erase("dialect");
  given.erase("config");
  Config config = resolve(given, translation.given);
  config.warning = std::move(translation.warning);
  config.notes.insert(config.notes.begin(), translation.notes.begin(), translation.notes.end());
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
