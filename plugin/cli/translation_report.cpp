#include "plugin/cli/translation_report.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "adapters/setting.hpp"
#include "plugin/cli/options_json.hpp"
#include "registry/host_text.hpp"
#include "registry/keys.hpp"
#include "registry/text_table.hpp"
#include "registry/toml_writer.hpp"

namespace fsdp2::cli {
namespace {

struct KeyRow {
  std::string key;
  Value value;
  std::optional<Source> source;  // none: it follows from other keys
  std::optional<Value> standard;
};

std::vector<KeyRow> rows_of(const Config& config) {
  const Fsdp2Options standard;
  std::vector<KeyRow> rows;
  const auto add = [&](const std::string& key, const Value& value, const std::optional<Value>& ours) {
    const auto source = config.sources.find(key);
    if (source == config.sources.end() && ours == value) return;
    rows.push_back({key, value, source == config.sources.end() ? std::nullopt : std::optional(source->second), ours});
  };
  for (const KeySpec& spec : key_specs()) {
    if (const auto value = value_of(spec, config.options))
      add(std::string(spec.name), *value, value_of(spec, standard));
  }
  for (const auto& [name, option] : config.options.strategy_options) {
    std::visit([&, &name = name](const auto& value) { add("strategy_options." + name, Value(value), std::nullopt); },
               option);
  }
  return rows;
}

/// The lines of the files that keys come from.
class FileLines {
 public:
  FileLines(const std::string& name, std::string text) { texts_.emplace(name, std::move(text)); }

  /// Without the blanks around it, cut where it is long; "" where it cannot be read.
  std::string line(const std::string& file, int64_t number) {
    auto found = texts_.find(file);
    if (found == texts_.end()) found = texts_.emplace(file, read(file)).first;
    const std::string& text = found->second;
    size_t begin = 0;
    for (int64_t line = 1; line < number && begin < text.size(); ++line) {
      begin = std::min(text.find('\n', begin), text.size()) + 1;
    }
    if (begin >= text.size()) return {};
    const std::string line = text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
    return shown(std::string(without_blanks(line)));
  }

 private:
  static std::string read(const std::string& file) {
    try {
      return read_host_file(file, {}, {});
    } catch (const Error&) {
      return {};
    }
  }

  std::map<std::string, std::string> texts_;
};

/// The other host has it so where nobody says anything.
bool is_host_default(const Source& source) {
  return source.translated && source.key.empty() && source.override_text.empty() && source.line == 0;
}

std::string origin_text(const KeyRow& row, const TranslatedFile& file, FileLines& lines) {
  if (!row.source) return "follows from other keys";
  const Source& source = *row.source;
  if (!source.override_text.empty()) return source.override_text;
  if (is_host_default(source)) {
    return "default of " + (file.dialect.empty() ? "the host of " + source.file : file.dialect);
  }
  if (source.line == 0) return source.file + ": " + source.key;
  return source.file + ":" + std::to_string(source.line) + " " + lines.line(source.file, source.line);
}

Json origin_json(const KeyRow& row, FileLines& lines) {
  if (!row.source) return "follows";
  const Source& source = *row.source;
  if (is_host_default(source)) return "default";
  Json json = Json::object();
  if (!source.file.empty()) json["file"] = source.file;
  if (source.line > 0) {
    json["line"] = source.line;
    json["column"] = source.column;
  }
  json["key"] = source.key.empty() ? row.key : source.key;
  json["text"] = source.line > 0 ? lines.line(source.file, source.line) : source.override_text;
  return json;
}

}  // namespace

std::string difference_text(const TranslatedFile& file) {
  FileLines lines(file.name, file.text);
  std::vector<TextRow> table{{"key", "value", "from", "default here"}};
  for (const KeyRow& row : rows_of(file.config)) {
    const bool differs = row.standard != row.value;
    table.push_back({row.key, value_text(row.value), origin_text(row, file, lines),
                     !differs       ? ""
                     : row.standard ? value_text(*row.standard)
                                    : "none"});
  }
  std::string text = aligned(table);
  for (const std::string& key : file.config.obsolete) text += "loses its meaning: " + key + "\n";
  for (const std::string& note : file.config.notes) text += "note: " + note + "\n";
  return text;
}

Json translation_json(const TranslatedFile& file) {
  FileLines lines(file.name, file.text);
  Json keys = Json::array();
  for (const KeyRow& row : rows_of(file.config)) {
    Json key{{"key", row.key}, {"value", json_of(row.value)}, {"from", origin_json(row, lines)}};
    if (row.standard != row.value) key["default_here"] = row.standard ? json_of(*row.standard) : Json(nullptr);
    keys.push_back(key);
  }
  return Json{{"file", file.name},
              {"dialect", file.dialect.empty() ? Json(nullptr) : Json(file.dialect)},
              {"toml", to_toml(file.config.options)},
              {"options", options_json(file.config.options)},
              {"keys", keys},
              {"obsolete", file.config.obsolete},
              {"warning", file.config.warning},
              {"notes", file.config.notes},
              {"remarks", file.remarks}};
}

}  // namespace fsdp2::cli
