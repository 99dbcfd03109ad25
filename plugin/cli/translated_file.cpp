#include "plugin/cli/translated_file.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <utility>

#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "adapters/detect.hpp"
#include "adapters/key_list.hpp"
#include "adapters/process_variables.hpp"
#include "registry/consistency.hpp"
#include "registry/host_text.hpp"
#include "registry/nearest_name.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2::cli {
namespace {

class FileTranslation {
 public:
  explicit FileTranslation(const TranslationRequest& request) : request_(request) {}

  TranslatedFile run() {
    read();
    DialectGuess guess;
    if (request_.dialect.empty()) guess = detect_dialect(result_.text, result_.name);
    GivenKeys given;
    if (guess.is_own) given = read_given(result_.text, result_.name);
    Extensions extensions = open_libraries(given, result_.name, request_.plugins);
    result_.remarks = extensions.notes();
    check_dialect(extensions);
    context_.flags = request_.flags;
    context_.ranks = request_.ranks;
    if (guess.is_own) {
      translate_own(std::move(given), std::move(extensions));
    } else {
      settle_dialect(guess);
      translate_other(std::move(extensions));
    }
    check_ranks(result_.config, request_.ranks);
    remark_on_use();
    return std::move(result_);
  }

 private:
  void read() {
    const bool is_input = request_.file == "-";
    result_.name = is_input ? "<stdin>" : request_.file;
    result_.text = is_input ? read_host_stream(std::cin, result_.name) : read_host_file(request_.file, {}, {});
    check_host_text(result_.text, result_.name);
  }

  /// What the command line itself says of it.
  void check_dialect(const Extensions& extensions) const {
    if (request_.dialect.empty()) return;
    try {
      find_translation(request_.dialect, extensions.adapters());
      check_flags(request_.dialect, request_.flags);
    } catch (const Error& error) {
      throw CLI::ValidationError("--dialect", error.what());
    }
  }

  void settle_dialect(const DialectGuess& guess) {
    result_.dialect = request_.dialect;
    if (!result_.dialect.empty()) return;
    if (guess.dialect.empty()) {
      if (result_.name.ends_with(".toml") && guess.candidates.empty())
        read_given(result_.text, result_.name);  // or why not
      std::vector<std::string_view> names;
      for (const Adapter& adapter : adapters()) names.push_back(adapter.dialect);
      Source source;
      source.file = result_.name;
      throw error_at(source, {},
                     "it is not clear whose file this is: " + guess.explain() + "; say it by --dialect, one of " +
                         quoted_list(names));
    }
    result_.dialect = guess.dialect;
    result_.remarks.push_back(result_.name + ": taken as the dialect " + guess.candidates.front().explain());
  }

  /// The version asked for, as a key of [fsdp].
  void put_version(GivenKeys& given) {
    if (!request_.version) return;
    Source source;
    source.override_text = "--to-version " + std::to_string(*request_.version);
    given.insert_or_assign("version", Given{*request_.version, source});
    context_.version = request_.version;
  }

  void translate_own(GivenKeys given, Extensions extensions) {
    const bool names_file = given.contains("config");
    const auto dialect = given.find("dialect");
    if (dialect != given.end()) result_.dialect = std::get<std::string>(dialect->second.value);
    std::vector<std::string_view> readers;
    for (const Adapter& adapter : adapters()) {
      const bool may_count = names_file && (result_.dialect.empty() || result_.dialect == adapter.dialect);
      if (may_count) readers.insert(readers.end(), adapter.variables.begin(), adapter.variables.end());
    }
    put_variables(readers, names_file ? "the file in `config`" : "a table [fsdp] without `config`");
    const auto version = given.find("version");
    if (version != given.end() && !names_file && request_.version > std::get<int64_t>(version->second.value)) {
      result_.config.notes.push_back(place(version->second.source) + "`version = 1` is converted to 2: `layout` is " +
                                     "\"ragged\" there unless it is given, not \"flat\"");
    }
    put_version(given);
    const size_t library_notes = extensions.notes().size();
    Config config = load_given(std::move(given), result_.name, std::move(extensions), context_);
    config.notes.erase(config.notes.begin(), config.notes.begin() + static_cast<std::ptrdiff_t>(library_notes));
    config.notes.insert(config.notes.begin(), result_.config.notes.begin(), result_.config.notes.end());
    result_.config = std::move(config);
  }

  void translate_other(Extensions extensions) {
    GivenKeys given;
    put_version(given);
    context_.read_file = [](const std::string& path, const Source& source) {
      return read_host_file(path, source, source.key);
    };
    const Adapter* adapter = find_adapter(result_.dialect);
    Translation translation;
    if (adapter != nullptr && adapter->translate_keys != nullptr && is_key_list(result_.text)) {
      translation = translate_keys(result_.dialect, keys_of(*adapter), result_.name, context_);
    } else {
      put_variables(adapter == nullptr ? std::span<const std::string_view>() : adapter->variables,
                    "a file of " + result_.dialect);
      translation = find_translation(result_.dialect, extensions.adapters())(result_.text, result_.name, context_);
    }
    result_.config = take_translation(given, std::move(translation));
    result_.config.extensions = std::move(extensions);
  }

  /// Of a list, with the variables from elsewhere: the process's come first, those of the command line last.
  [[nodiscard]] std::vector<HostKey> keys_of(const Adapter& adapter) {
    for (const HostKey& variable : request_.variables) {
      remark_unread(variable, adapter.key_variables, "a list of keys of " + result_.dialect);
    }
    std::vector<HostKey> keys;
    if (request_.uses_process_variables) {
      Source source;
      source.file = "the environment";
      for (const auto& [name, value] : process_variables(adapter.key_variables)) keys.push_back({name, value, source});
    }
    const std::vector<HostKey> written = read_key_list(result_.text, result_.name);
    keys.insert(keys.end(), written.begin(), written.end());
    keys.insert(keys.end(), request_.variables.begin(), request_.variables.end());
    drop_earlier_variables(keys);
    return keys;
  }

  void remark_unread(const HostKey& variable, std::span<const std::string_view> readers, const std::string& subject) {
    if (reads_variable(readers, variable.name)) return;
    const std::string others = readers.empty() ? "no variables are read" : "only " + quoted_list(readers) + " is read";
    result_.remarks.push_back("`" + variable.source.override_text + "` has no effect: beside " + subject + " " +
                              others + did_you_mean(nearest_name(variable.name, readers)));
  }

  /// `readers`: those that count beside `subject`.
  void put_variables(std::span<const std::string_view> readers, const std::string& subject) {
    if (request_.uses_process_variables) context_.environment = process_variables(readers);
    for (const HostKey& variable : request_.variables) {
      context_.environment.insert_or_assign(variable.name, variable.value);
      remark_unread(variable, readers, subject);
    }
  }

  void remark_on_use() {
    const Config& config = result_.config;
    if (config.options.version == 1 && !request_.version) {
      result_.remarks.push_back(result_.name + ": version 1 is read and printed, not run; --to-version 2 converts it");
    }
    try {
      check_wrap_complete(config);
    } catch (const Error& error) {
      result_.remarks.push_back(std::string(error.what()) + ": it must be added to what is printed");
    }
  }

  const TranslationRequest& request_;
  TranslationContext context_;
  TranslatedFile result_;
};

}  // namespace

TranslatedFile translate_file(const TranslationRequest& request) {
  return FileTranslation(request).run();
}

}  // namespace fsdp2::cli
