#include "adapters/config.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapters.hpp"
#include "adapters/detect.hpp"
#include "adapters/process_variables.hpp"
#include "registry/host_text.hpp"
#include "registry/keys.hpp"
#include "registry/nearest_name.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2 {
namespace {

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

/// What other hosts read from the environment, beside a file.
TranslationContext context_of_process() {
  TranslationContext context;
  for (const Adapter& adapter : adapters()) context.environment.merge(process_variables(adapter.variables));
  return context;
}

Translation translate_file(const GivenKeys& given, const std::string& name, const Extensions& extensions,
                           const TranslationContext& context) {
  const auto named = given.find("dialect");
  const auto written = given.find("config");
  if (written == given.end()) {
    throw error_at(named->second.source, "dialect", "`dialect` needs `config` beside it");
  }
  const Source& source = written->second.source;
  const std::string path = beside(name, std::get<std::string>(written->second.value));
  const auto translation_of = [&](const std::string& dialect, const Source& place) {
    return find_translation(dialect, extensions.adapters(), place);
  };
  Translate translate;
  if (named != given.end()) {
    translate = translation_of(std::get<std::string>(named->second.value), named->second.source);
  }
  const std::string text = read_host_file(path, source, "config");
  std::vector<std::string> notes;
  if (!translate) translate = translation_of(told_dialect(text, path, source, notes), source);
  Translation translation = translate(text, path, context);
  translation.notes.insert(translation.notes.begin(), notes.begin(), notes.end());
  return translation;
}

Error no_dialect(std::span<const HostKey> keys) {
  const DialectGuess guess = detect_dialect(keys);
  std::string sentence =
      "a list of the host's keys needs `dialect`, which says whose they are: one of " + quoted_list(dialects_of_keys());
  if (!guess.dialect.empty()) sentence += "; they look like those of " + guess.candidates.front().explain();
  return {ErrorCode::kInvalidArgument, sentence, {.key = "dialect", .nearest = std::string(guess.dialect)}};
}

Translation translate_list(const GivenKeys& given, std::span<const HostKey> keys, const Extensions& extensions,
                           const TranslationContext& context) {
  if (const auto config = given.find("config"); config != given.end()) {
    throw error_at(config->second.source, "config",
                   "`config` cannot stand beside a list of the host's keys: leave one of them out");
  }
  const auto dialect = given.find("dialect");
  if (dialect == given.end()) throw no_dialect(keys);
  return translate_keys(std::get<std::string>(dialect->second.value), keys, "the host's keys", context,
                        extensions.adapters(), dialect->second.source);
}

Config combine(GivenKeys given, const std::string& name, const Extensions& extensions, TranslationContext context,
               const HostKeys& keys) {
  if (!given.contains("dialect") && !given.contains("config") && !keys) {
    check_flags("", context.flags);
    return resolve(given);
  }
  context.read_file = [](const std::string& path, const Source& source) {
    return read_host_file(path, source, source.key);
  };
  if (const auto version = given.find("version"); version != given.end()) {
    context.version = std::get<int64_t>(version->second.value);
  }
  Translation translation =
      keys ? translate_list(given, *keys, extensions, context) : translate_file(given, name, extensions, context);
  // The other host's configuration is part of the options from here on.
  given.erase("dialect");
  given.erase("config");
  return take_translation(given, std::move(translation));
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

Config load(GivenKeys given, const std::string& name, Extensions extensions, TranslationContext context,
            const HostKeys& keys) {
  Config config = combine(std::move(given), name, extensions, std::move(context), keys);
  config.notes.insert(config.notes.begin(), extensions.notes().begin(), extensions.notes().end());
  config.extensions = std::move(extensions);
  return config;
}

Config load(GivenKeys given, const std::string& name, const HostKeys& keys) {
  Extensions extensions = open_libraries(given, name);
  // A list of keys is all that there is, whatever the process's environment holds.
  return load(std::move(given), name, std::move(extensions), keys ? TranslationContext{} : context_of_process(), keys);
}

}  // namespace

Config load_config(const std::string& toml_file, std::span<const std::string> overrides, const HostKeys& keys) {
  GivenKeys given = read_given_file(toml_file);
  apply_overrides(given, overrides);
  return load(std::move(given), toml_file, keys);
}

Config load_config_text(std::string_view toml, const std::string& name, std::span<const std::string> overrides,
                        const HostKeys& keys) {
  GivenKeys given = read_given(toml, name);
  apply_overrides(given, overrides);
  return load(std::move(given), name, keys);
}

Config take_translation(const GivenKeys& given, Translation translation) {
  Config config = resolve(given, translation.given);
  config.warning = std::move(translation.warning);
  config.obsolete = std::move(translation.obsolete);
  config.notes.insert(config.notes.begin(), translation.notes.begin(), translation.notes.end());
  return config;
}

Extensions open_libraries(GivenKeys& given, const std::string& name, std::span<const std::string> more) {
  Extensions extensions = open_extensions(given, name);
  const auto plugins = given.find("plugins");
  const Source source = plugins == given.end() ? Source{} : plugins->second.source;
  for (const ExtensionAdapter& adapter : extensions.adapters()) refuse_taken_dialect(adapter, source);
  Source caller;
  caller.file = "--plugins";
  for (const std::string& path : more) extensions.open(library_path(path, ""), caller);
  for (const ExtensionAdapter& adapter : extensions.adapters()) refuse_taken_dialect(adapter, caller);
  return extensions;
}

Config load_given(GivenKeys given, const std::string& name, Extensions extensions, const TranslationContext& context) {
  return load(std::move(given), name, std::move(extensions), context, std::nullopt);
}

}  // namespace fsdp2
