// What will be done, as plain data: which parameters form a unit, where each lies in the unit's buffers, when a unit is
// resharded. Strategies make it, the command line prints it, tests compare it, the engine runs it. Needs no weights and
// no ranks: a plan for 16,384 ranks is made on a laptop.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "registry/dtype.hpp"
#include "registry/module_tree.hpp"

namespace fsdp2 {

/// Ranks of one job, as replicate x shard. World size is the product.
struct Mesh {
  int64_t replicate = 1;
  int64_t shard = 1;
  bool operator==(const Mesh&) const = default;
};

/// Of a parameter that is cut by itself, in dimension 0: its chunk lies at one place in every rank's part. Rank r owns
/// elements [r * size, (r + 1) * size) of the parameter, as far as it has them; the rest of the chunk is padding.
struct PlannedChunk {
  int64_t offset = 0;  // elements from the start of the part
  int64_t size = 0;    // elements
  bool operator==(const PlannedChunk&) const = default;
};

struct PlannedParameter {
  std::string name;                  // full name from the root
  std::vector<std::string> aliases;  // the other names of a tied parameter
  std::vector<int64_t> shape;
  size_t buffer = 0;                       // index into PlannedUnit::buffers
  int64_t offset = 0;                      // elements from the start of that buffer's full parameters
  std::optional<PlannedChunk> chunk = {};  // unset where the layout cuts the buffer and not each parameter
  bool operator==(const PlannedParameter&) const = default;
};

/// One flat buffer of a unit: mesh.shard parts of equal size, of which each rank of the shard dimension owns one. The
/// parts one after the other are the full parameters, or are copied out to where these are.
struct PlannedBuffer {
  DType dtype = DType::kFloat32;
  bool trainable = true;
  int64_t part = 0;        // elements a rank
  int64_t filled = 0;      // elements that are parameters; part * mesh.shard - filled is padding
  int64_t copied_out = 0;  // elements of the full parameters' own memory; 0 where the gathered parts are that memory
  DType reduced = DType::kFloat32;  // what gradients are summed over ranks in
  std::optional<DType> cast = {};   // what it is gathered and computed in; unset: the dtype in which it is stored
  bool operator==(const PlannedBuffer&) const = default;
};

struct PlannedUnit {
  std::string path;  // module path from the root, "" for the root
  std::string class_name;
  std::optional<size_t> parent;  // the unit that encloses it, an index into Plan::units; unset for the root
  bool reshard_after_forward = true;
  std::vector<PlannedBuffer> buffers;
  std::vector<PlannedParameter> parameters;
  std::optional<DType> inputs_cast = {};  // what floating inputs of a call are cast to
  std::optional<DType> outputs_cast = {};
  /// After forward each block of so many neighbouring ranks holds the unit whole once, until backward gathers it inside
  /// the block. Divides mesh.shard and is smaller. 0: a rank keeps its shard alone.
  int64_t reshard_to = 0;
  /// Units, by index, whose gathers start with this one's forward, or backward, in place of the plan's depth. Empty:
  /// the depth counts.
  std::vector<size_t> ahead_in_forward = {};
  std::vector<size_t> ahead_in_backward = {};
  bool operator==(const PlannedUnit&) const = default;
};

struct Plan {
  std::string strategy;  // full name, "fsdp2.full_shard"
  std::string layout;    // "ragged", "per_parameter"
  Mesh mesh;
  std::vector<PlannedUnit> units;                    // bottom-up: children first, the root last
  std::vector<std::string> ignored_parameters = {};  // names; of modules that stay the host's own
  std::vector<std::string> notes;                    // remarks for a person, for example where a tied weight went
  bool force_collectives = false;                    // communicate even where one rank would not need to
  bool broadcasts_values = false;  // rank 0's parameters and buffers count, and are sent to the others
  int64_t check_steps = 0;         // optimizer steps whose gradients are checked
  int64_t prefetch_forward = 0;    // units that are gathered ahead of the one that runs
  int64_t prefetch_backward = 0;
  int64_t order_check = 0;  // backward passes whose order of collectives is compared over ranks, -1 is all
  std::optional<double> gradient_divisor = {};  // of sums of gradients over ranks; unset: the number of ranks
  std::optional<double> clip_norm = {};         // of all gradients, where the host asks for it; unset: none
  bool operator==(const Plan&) const = default;
};

/// Whether units are gathered and freed: not where each rank holds them whole (no_shard, a world of 1).
bool gathers(const Plan& plan);
/// Whether gradients are reduced over ranks.
bool reduces(const Plan& plan);

/// The dtype of the full parameters, of what gathers move, and of their gradients until these reach the shards.
DType compute_dtype(const PlannedBuffer& buffer);

/// Whether full parameters of the buffer are other memory than the shard.
bool is_copied(const Plan& plan, const PlannedBuffer& buffer);

/// Elements of a tensor of that shape.
int64_t numel(const std::vector<int64_t>& shape);

/// Bytes of a whole parameter, in its own dtype.
int64_t bytes_of(const TreeParameter& parameter);

/// Bytes of one unit when it is whole, in its compute dtypes (padding included).
int64_t unsharded_bytes(const Plan& plan, const PlannedUnit& unit);

/// Bytes that a rank keeps of a unit that reshards to a block of ranks, beside its shard, in the compute dtypes. 0 for
/// other units.
int64_t block_bytes(const Plan& plan, const PlannedUnit& unit);

/// Bytes of parameters that one rank holds at rest (padding included): of one unit, of all.
int64_t shard_bytes(const PlannedUnit& unit);
int64_t shard_bytes(const Plan& plan);

/// Bytes of all parameters, each once, without padding.
int64_t parameter_bytes(const Plan& plan);

/// The most bytes that full parameters take at once, beside the shards, while training: when a
/// unit has been gathered and not yet been copied out, that unit and its gathered parts, the units that enclose it, and
/// the units that do not reshard after forward (those inside it come later if it is one of them), and what is kept of
/// those that reshard to a block of ranks. 0 where shards are the full parameters.
int64_t peak_unsharded_bytes(const Plan& plan);

/// The same in one of the passes. `beside`, by unit: bytes that are there too when that unit has run.
enum class Pass : uint8_t { kForward, kBackward };
int64_t peak_unsharded_bytes(const Plan& plan, Pass pass, std::span<const int64_t> beside = {});

/// Units as a forward is expected to run them before one has been seen: each before those inside it, else in their
/// order; and as backward runs them: each before those inside it, else the last one first.
std::vector<size_t> forward_order(const Plan& plan);
std::vector<size_t> backward_order(const Plan& plan);

/// The part of a parameter that one rank owns, in elements of the flattened parameter: [begin, end).
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const ShardRange&) const = default;
};
ShardRange shard_range(const PlannedUnit& unit, const PlannedParameter& parameter, int64_t shard_rank);

/// Where that part begins, in elements of the rank's part of the buffer.
int64_t shard_offset(const PlannedUnit& unit, const PlannedParameter& parameter, int64_t shard_rank);

/// The shape under which a host sees that part: [rows, ...] where both ends fall between rows (dimension 0), else flat.
std::vector<int64_t> shard_shape(const PlannedParameter& parameter, ShardRange range);

/// The plan as a table for a person, a line a unit, with totals and notes.
std::string to_table(const Plan& plan);

}  // namespace fsdp2
