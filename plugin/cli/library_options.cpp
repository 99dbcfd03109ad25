#include "plugin/cli/library_options.hpp"

namespace fsdp2::cli {

std::shared_ptr<std::vector<std::string>> add_plugins_option(CLI::App& command) {
  auto plugins = std::make_shared<std::vector<std::string>>();
  command
      .add_option("--plugins", *plugins,
                  "a shared library with strategies or adapters; may be given again. Those in the environment variable "
                  "FSDP2_PLUGINS count too")
      ->type_name("LIB")
      ->allow_extra_args(false);
  return plugins;
}

}  // namespace fsdp2::cli
