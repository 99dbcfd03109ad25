// Strategies and adapters from outside: libraries opened, their tables checked.
#pragma once
#include <fsdp2/extension.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "registry/c_struct.hpp"
#include "registry/given.hpp"

namespace fsdp2 {

template <>
inline constexpr size_t kFirstSize<fsdp2_extension> = 64;
template <>
inline constexpr size_t kFirstSize<fsdp2_strategy> = 56;
template <>
inline constexpr size_t kFirstSize<fsdp2_adapter> = 40;

/// A table of a library, in this library's size, and the path of that library.
struct ExtensionStrategy {
  fsdp2_strategy table;
  std::string library;
};
struct ExtensionAdapter {
  fsdp2_adapter table;
  std::string library;
};

/// What libraries have registered. Names are complete and nobody else's; a library that was opened stays loaded, so
/// copies are good for ever.
class Extensions {
 public:
  /// Opens a library and takes what it registers; one that is here already is passed over. A fault is told as one of
  /// the key `plugins` at `source`.
  void open(const std::string& path, const Source& source);

  [[nodiscard]] std::span<const ExtensionStrategy> strategies() const { return strategies_; }
  [[nodiscard]] std::span<const ExtensionAdapter> adapters() const { return adapters_; }

  /// The strategy of that full name, or null.
  [[nodiscard]] const ExtensionStrategy* find_strategy(std::string_view full_name) const;

  /// One line a library: its name, version and path, and what it registers.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void take(const fsdp2_extension& extension, const std::string& path);
  void add(const fsdp2_strategy* given, const std::string& path);
  void add(const fsdp2_adapter* given, const std::string& path);

  std::vector<const fsdp2_extension*> libraries_;
  std::vector<ExtensionStrategy> strategies_;
  std::vector<ExtensionAdapter> adapters_;
  std::vector<std::string> notes_;
};

/// A path as `plugins` has it, from a folder: a bare name that is no file there is for the loader to find
/// (LD_LIBRARY_PATH).
std::string library_path(const std::string& path, const std::string& folder);

/// `plugins = [...]` of a file, whose folder relative paths start from, and the environment variable FSDP2_PLUGINS, a
/// list with colons. In `given` the paths become absolute.
Extensions open_extensions(GivenKeys& given, const std::string& file);

}  // namespace fsdp2
