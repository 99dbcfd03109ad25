// Cases that every rank of a pool runs, and what a rank knows while it runs one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/ranks/harness/recording_communicator.hpp"

namespace fsdp2::testing {

class RankContext;

/// Connects all ranks over some transport. `name` is the same on all ranks, and new. Collective.
using Connect = std::function<std::shared_ptr<Communicator>(RankContext&, const std::string& name, double timeout_s)>;
std::shared_ptr<Communicator> connect_by_gloo(RankContext& context, const std::string& name, double timeout_s);

/// One rank's view of the case that runs.
class RankContext {
 public:
  RankContext(int64_t rank, int64_t world, std::string scratch, Connect connect = connect_by_gloo);

  [[nodiscard]] int64_t rank() const { return rank_; }
  [[nodiscard]] int64_t world() const { return world_; }
  /// Path of an exported model.
  [[nodiscard]] std::string model_path(const std::string& name) const;
  /// A file that all ranks of the case may share. Empty folder at the start of a case.
  [[nodiscard]] std::string scratch_path(const std::string& name) const { return scratch_ + "/" + name; }

  /// A new group over all ranks. Collective; ranks make them in the same order.
  std::shared_ptr<RecordingCommunicator> new_communicator(double timeout_s = 60);
  /// Waits for all ranks. Not a collective of the communicators that tests count.
  void barrier();
  /// Sums over ranks.
  double sum(double value);
  std::vector<double> sum(std::vector<double> values);

 private:
  int64_t rank_;
  int64_t world_;
  std::string scratch_;
  Connect connect_;
  int groups_ = 0;
  std::shared_ptr<RecordingCommunicator> own_;
};

struct Outcome;

/// Reports faults by GoogleTest's assertions or by throwing.
using CaseFunction = std::function<void(RankContext&)>;
/// Says what is wrong with how the ranks ended; nothing if all is as wanted.
using Judge = std::function<std::string(const std::vector<Outcome>&)>;

struct RankCase {
  std::string topic;
  std::string name;
  CaseFunction run;
  std::vector<int64_t> worlds;
  int limit_s;
  const char* file;
  int line;
  Judge judge;  // for cases in which a rank must die: they have ranks of their own
};

/// Faults of a case on this rank, as text.
std::string run_case(const RankCase& rank_case, RankContext& context);

/// All cases of the program, in the order of registration within a file.
std::vector<RankCase>& rank_cases();

/// True, so that it can initialise a static object.
bool add_case(const char* file, int line, std::string topic, std::string name, CaseFunction run,
              std::vector<int64_t> worlds = {2}, int limit_s = 120, Judge judge = {});

/// Folder of the exported models; set by main().
std::string& models_folder();
/// Number of ranks of the program's pool; set by main().
int64_t& pool_world();

// RANK_CASE(topic, name) { ... uses `context` ... } runs on two ranks; RANK_CASE_ON names the worlds, where how many
// ranks there are is the point (cuts, counts, parity) and not only that there are others.
#define RANK_CASE_ON(topic, name, ...)                                                        \
  static void topic##_##name(::fsdp2::testing::RankContext& context);                         \
  [[maybe_unused]] static const bool topic##_##name##_added = ::fsdp2::testing::add_case(     \
      __FILE__, __LINE__, #topic, #name, &topic##_##name, std::vector<int64_t>{__VA_ARGS__}); \
  static void topic##_##name([[maybe_unused]] ::fsdp2::testing::RankContext& context)
#define RANK_CASE(topic, name) RANK_CASE_ON(topic, name, 2)

}  // namespace fsdp2::testing
