#include "adapters/json_settings.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "registry/host_text.hpp"

namespace fsdp2 {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// The same text, as long, with blanks in place of comments and of commas before a closing bracket.
std::string without_extras(std::string_view text) {
  std::string plain(text);
  size_t comma = std::string::npos;  // the last thing that was not blank
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < std::min(to, plain.size()); ++i) {
      if (plain[i] != '\n') plain[i] = ' ';
    }
  };
  if (text.starts_with(kByteOrderMark)) blank(0, kByteOrderMark.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    const char c = plain[i];
    if (c == '"') {
      for (++i; i < plain.size() && plain[i] != '"'; ++i) i += plain[i] == '\\' ? 1 : 0;
      comma = std::string::npos;
    } else if (c == '#' || plain.compare(i, 2, "//") == 0) {
      const size_t end = std::min(plain.find('\n', i), plain.size());
      blank(i, end);
      i = end - 1;
    } else if (plain.compare(i, 2, "/*") == 0) {
      const size_t close = plain.find("*/", i + 2);
      if (close == std::string::npos) return plain;  // an error of the reader
      blank(i, close + 2);
      i = close + 1;
    } else if (c == ',') {
      comma = i;
    } else if (c == ']' || c == '}') {
      if (comma != std::string::npos) plain[comma] = ' ';
      comma = std::string::npos;
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      comma = std::string::npos;
    }
  }
  return plain;
}

/// Makes settings of what the reader calls. The reader tells no places, but it calls in the order of the text and only
/// for what it found sound: so a second cursor that steps from token to token knows them.
class JsonSettings : public nlohmann::json_sax<Json> {
 public:
  JsonSettings(std::string_view text, const std::string& file) : text_(text), file_(file), places_(text) {}

  Setting result() { return std::move(root_); }

  bool null() override { return add(word(Setting::Kind::kNull, "None")); }

  bool boolean(bool value) override {
    Setting setting = word(Setting::Kind::kBool, value ? "True" : "False");
    setting.flag = value;
    return add(std::move(setting));
  }

  bool number_integer(number_integer_t value) override { return add_whole(value); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value <= INT64_MAX) return add_whole(static_cast<int64_t>(value));
    return number_float(static_cast<double>(value), std::to_string(value));
  }

  bool number_float(number_float_t value, const string_t& written) override {
    Setting setting = word(Setting::Kind::kReal, written);
    setting.real = value;
    return add(std::move(setting));
  }

  bool string(string_t& value) override {
    Setting setting;
    setting.kind = Setting::Kind::kText;
    setting.source = begin_token();
    setting.text = value;
    ReadBudget::check_text(value, setting.source);
    skip_string();
    return add(std::move(setting));
  }

  bool binary(binary_t& /*value*/) override { return false; }  // JSON has none

  bool start_object(size_t /*count*/) override { return open(Setting::Kind::kMap); }
  bool start_array(size_t /*count*/) override { return open(Setting::Kind::kList); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    key_ = begin_token();
    ReadBudget::check_key(value, key_);
    key_.key = value;
    skip_string();
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    Source source;
    source.file = file_;
    source.translated = true;
    PlaceCounter(text_).put(position == 0 ? 0 : position - 1, source);
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong; last read: '...'"
    const std::string full = error.what();
    const size_t head = full.find(": ");
    const std::string reason = head == std::string::npos ? full : full.substr(head + 2);
    throw error_at(source, {}, "this is not JSON: " + shown(reason.substr(0, reason.find("; last read"))));
  }

 private:
  /// The place of the token that the reader is at: the next one that is no mark between tokens.
  Source begin_token() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n,:", at_), text_.size());
    Source source;
    source.file = file_;
    source.translated = true;
    places_.put(at_, source);
    return source;
  }

  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) at_ += text_[at_] == '\\' ? 1 : 0;
    ++at_;
  }

  Setting word(Setting::Kind kind, const std::string& text) {
    Setting setting;
    setting.kind = kind;
    setting.source = begin_token();
    setting.text = kind == Setting::Kind::kNull ? "" : text;
    at_ = std::min(text_.find_first_of(" \t\r\n,:]}", at_), text_.size());
    return setting;
  }

  bool add_whole(int64_t value) {
    Setting setting = word(Setting::Kind::kInt, std::to_string(value));
    setting.whole = value;
    return add(std::move(setting));
  }

  bool open(Setting::Kind kind) {
    Setting setting;
    setting.kind = kind;
    setting.source = begin_token();
    ++at_;
    name(setting);
    open_.push_back(std::move(setting));
    return true;
  }

  bool close() {
    begin_token();
    ++at_;
    Setting done = std::move(open_.back());
    open_.pop_back();
    put(std::move(done));
    return true;
  }

  bool add(Setting setting) {
    name(setting);
    put(std::move(setting));
    return true;
  }

  void name(Setting& setting) {
    const bool in_map = !open_.empty() && open_.back().kind == Setting::Kind::kMap;
    setting.key_source = in_map ? key_ : setting.source;
    setting.key = key_.key;
    setting.source.key = in_map ? key_.key : open_.empty() ? "" : open_.back().source.key;
    budget_.count(open_.size(), setting.source);
  }

  void put(Setting setting) {
    if (open_.empty()) {
      root_ = std::move(setting);
    } else if (open_.back().kind == Setting::Kind::kMap) {
      open_.back().members.push_back(std::move(setting));
    } else {
      open_.back().list.push_back(std::move(setting.text));
    }
  }

  std::string_view text_;
  const std::string& file_;
  PlaceCounter places_;
  size_t at_ = 0;
  ReadBudget budget_;
  Source key_;
  std::vector<Setting> open_;  // maps and lists around the reader
  Setting root_;
};

}  // namespace

Setting read_json(std::string_view text, const std::string& file, JsonExtras extras) {
  check_host_text(text, file);
  if (extras == JsonExtras::kNone && text.starts_with(kByteOrderMark)) {
    Source source;
    source.file = file;
    source.line = source.column = 1;
    throw error_at(source, {}, "the file begins with a byte order mark, which JSON does not have");
  }
  const std::string plain = extras == JsonExtras::kNone ? std::string(text) : without_extras(text);
  JsonSettings settings(plain, file);
  Json::sax_parse(plain, &settings);
  return settings.result();
}

void refuse_duplicate_keys(const Setting& setting) {
  std::set<std::string_view> seen;
  for (const Setting& member : setting.members) {
    if (!seen.insert(member.key).second) {
      throw error_at(member.key_source, member.source.key, "`" + member.source.key + "` stands twice in one map");
    }
    refuse_duplicate_keys(member);
  }
}

}  // namespace fsdp2
