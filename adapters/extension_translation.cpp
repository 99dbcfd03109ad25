#include "adapters/extension_translation.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "registry/error.hpp"
#include "registry/extension_call.hpp"
#include "registry/keys.hpp"
#include "registry/toml_reader.hpp"

namespace fsdp2 {
namespace {

/// What the adapter finds in a file.
class TranslationOutput {
 public:
  /// `adapter` is what messages call it.
  TranslationOutput(std::string adapter, std::string file) : adapter_(std::move(adapter)), file_(std::move(file)) {}

  [[nodiscard]] fsdp2_translation_output table() {
    return {.struct_size = sizeof(fsdp2_translation_output),
            .context = this,
            .add_key = &add_key,
            .add_obsolete = &add_obsolete,
            .add_note = &add_note,
            .fail = &fail};
  }

  [[nodiscard]] const FirstFault& fault() const { return fault_; }
  Translation result() && { return std::move(result_); }

 private:
  static TranslationOutput& of(void* context) { return *static_cast<TranslationOutput*>(context); }

  [[nodiscard]] Source source_at(const char* written, int64_t line, int64_t column) const {
    Source source;
    source.file = file_;
    source.line = std::max<int64_t>(line, 0);
    source.column = std::max<int64_t>(column, 1);
    source.key = text_or(written, "");
    source.translated = true;
    return source;
  }

  void add(const std::string& key, const std::string& value, const Source& source) {
    const std::string gave = adapter_ + ": it gave `" + key + "`";
    if (find_key(key) == nullptr) {
      throw error_at(source, key, gave + ", which is no key of [fsdp]", nearest_key(key), ErrorCode::kInternal);
    }
    const std::optional<Value> read = read_value(value);
    if (!read) throw error_at(source, key, gave + " = " + value + ", which is not TOML", {}, ErrorCode::kInternal);
    result_.given[key] = {*read, source};
  }

  static void add_key(void* context, const char* key, const char* value, const char* written, int64_t line,
                      int64_t column) noexcept {
    TranslationOutput& output = of(context);
    output.fault_.record(
        [&] { output.add(text_or(key, ""), text_or(value, ""), output.source_at(written, line, column)); });
  }

  static void add_obsolete(void* context, const char* written, int64_t line) noexcept {
    TranslationOutput& output = of(context);
    output.fault_.record([&] {
      Translation& result = output.result_;
      const std::string key = text_or(written, "");
      result.obsolete.push_back(key);
      result.warning += result.warning.empty() ? output.file_ + ": obsolete, to be removed: `" : ", `";
      result.warning += key + "`" + (line > 0 ? " (line " + std::to_string(line) + ")" : "");
    });
  }

  static void add_note(void* context, const char* text) noexcept {
    TranslationOutput& output = of(context);
    output.fault_.record([&] { output.result_.notes.emplace_back(text_or(text, "")); });
  }

  static void fail(void* context, fsdp2_code code, const char* message, const char* written, int64_t line,
                   int64_t column) noexcept {
    TranslationOutput& output = of(context);
    output.fault_.record([&] {
      const Source source = output.source_at(written, line, column);
      const std::string sentence = message == nullptr ? output.adapter_ + ": it failed without a message" : message;
      throw error_at(source, source.key, sentence, {}, code_from(code));
    });
  }

  std::string adapter_;
  std::string file_;
  Translation result_;
  FirstFault fault_;
};

}  // namespace

Translate translation_by(const ExtensionAdapter& adapter) {
  return [adapter](std::string_view given, const std::string& file, const TranslationContext& context) {
    const std::string text(given);  // null-terminated
    const fsdp2_translation_input input{.struct_size = sizeof(fsdp2_translation_input),
                                        .text = text.c_str(),
                                        .length = text.size(),
                                        .file = file.c_str(),
                                        .version = context.version.value_or(0)};
    const std::string name = "adapter \"" + std::string(adapter.table.dialect) + "\" (" + adapter.library + ")";
    TranslationOutput output(name, file);
    const fsdp2_translation_output wanted = output.table();
    try {
      call_extension([&] { return adapter.table.translate(adapter.table.user, &input, &wanted); }, output.fault());
    } catch (const Error& error) {
      if (!error.details().file.empty()) throw;  // a fault of the file, or named already
      throw Error(error.code(), name + ": " + error.what(), error.details());
    }
    return std::move(output).result();
  };
}

}  // namespace fsdp2
