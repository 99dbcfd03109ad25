#include "samples/host_trainer/command_line.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "samples/host_trainer/nearest.hpp"

namespace trainer {
namespace {

namespace fs = std::filesystem;

/// A file that can be written later on: better to know before the training than after it.
std::string check_output(const std::string& text) {
  const fs::path path(text);
  std::error_code error;
  if (fs::is_directory(path, error)) return text + " is a folder";
  if (fs::exists(path, error)) return access(path.c_str(), W_OK) == 0 ? "" : text + " cannot be written";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!fs::is_directory(folder, error)) return "the folder " + folder.string() + " is not there";
  const fs::path probe = path.string() + '.' + std::to_string(getpid()) + ".probe";
  if (!std::ofstream(probe)) return "no file can be made in " + folder.string();
  fs::remove(probe, error);
  return "";
}

/// The plugin of the same build or installation.
std::string default_plugin() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  return (here.parent_path() / "lib" / "libfsdp2_plugin.so").string();
}

std::string suggest(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (!word.starts_with("--") || std::find(names.begin(), names.end(), word) != names.end()) continue;
    const std::string near = nearest(word, names);
    if (!near.empty()) return "Did you mean " + near + "?\n";
  }
  return "";
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, char** argv) {
  ParsedCommandLine parsed;
  CommandLine& o = parsed.options;
  o.plugin = default_plugin();
  CLI::App app(
      "Trains a TorchScript module, sharded by the FSDP2 plugin.\n"
      "Without --nproc it is one rank: of those that torchrun, mpirun or srun started, or the only one.",
      "fsdp2-train");
  app.add_option("--config", o.config, "TOML with [model], [data], [train] and the plugin's [fsdp]")->required();
  app.add_option("--set", o.sets, "section.key=value; wins over the file; may be given again")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--nproc", o.nproc,
                 "start N ranks on this machine; with --unsharded: how many ranks' batches the one process trains on; "
                 "with --plan: the ranks to plan for")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  app.add_option("--metrics", o.metrics, "write one JSON object a step to this file, and a summary")
      ->type_name("FILE")
      ->check(check_output);
  app.add_option("--plugin", o.plugin, "libfsdp2_plugin.so; without it the one in ../lib beside this program")
      ->type_name("FILE");
  app.add_flag("--plan", o.plan, "print what each rank would hold, and stop");
  app.add_flag("--unsharded", o.unsharded, "train the plain module in one process, on the same global batches");
  app.add_option("--save", o.save, "write the trained module here, a plain TorchScript file")
      ->type_name("FILE")
      ->check(check_output);
  app.add_option("--backend", o.backend,
                 "gloo, nccl or mpi; without it nccl where each rank has a GPU, else gloo. mpi: under mpirun")
      ->check(CLI::IsMember({"gloo", "nccl", "mpi"}));
  try {
    app.parse(argc, argv);
    if (o.nproc && o.backend == "mpi" && !o.plan && !o.unsharded)
      throw CLI::ValidationError("--nproc", "with --backend mpi ranks are started by mpirun -n N fsdp2-train ...");
    if (o.plan && o.unsharded) throw CLI::ValidationError("--plan", "there is no plan with --unsharded");
  } catch (const CLI::ParseError& e) {
    const bool help = e.get_exit_code() == 0;
    app.exit(e);
    if (!help) std::cerr << suggest(app, argc, argv);
    parsed.exit_code = help ? 0 : 2;
  }
  return parsed;
}

}  // namespace trainer
