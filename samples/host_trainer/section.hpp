// Reads one TOML table: every wrong value is an error that says where it stands and what would be right.
#pragma once
#include <toml++/toml.h>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainer {

/// what() is the whole sentence for a person, place included.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "train.toml:3:5: ", or "--set train.lr=x: " for what the command line changed.
std::string place_of(const toml::source_region& region);

class Section {
 public:
  /// `name` is the path from the top ("data.synthetic"). Throws for a key that is not in `keys`.
  Section(const toml::table& table, std::string name, std::vector<std::string> keys);

  [[nodiscard]] bool has(const std::string& key) const { return table_.contains(key); }
  [[nodiscard]] std::optional<std::string> text(const std::string& key) const;
  /// One of `choices`.
  [[nodiscard]] std::optional<std::string> choice(const std::string& key,
                                                  const std::vector<std::string>& choices) const;
  [[nodiscard]] std::optional<int64_t> integer(const std::string& key, int64_t least, int64_t most = INT64_MAX) const;
  /// Finite; at least 0.
  [[nodiscard]] std::optional<double> number(const std::string& key) const;
  [[nodiscard]] std::optional<std::vector<std::string>> texts(const std::string& key) const;
  [[nodiscard]] const toml::table* table(const std::string& key) const;

  /// The place of a value, or of the section where the key is absent.
  [[nodiscard]] std::string place(const std::string& key) const;
  [[nodiscard]] std::string quoted(const std::string& key) const { return '"' + name_ + '.' + key + '"'; }
  [[noreturn]] void fail(const std::string& key, const std::string& sentence) const;
  [[noreturn]] void missing(const std::string& key, const std::string& meaning) const;

 private:
  [[noreturn]] void wrong_type(const std::string& key, const std::string& wanted) const;

  const toml::table& table_;
  std::string name_;
};

}  // namespace trainer
