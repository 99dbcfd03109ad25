// A host's MPI_Comm as the communicator of an engine. Header-only, C++17, any MPI of version 3.0 or later; only a host
// that includes it needs MPI, the plugin itself links none.
//
//   fsdp2::MpiCommunicator ranks(MPI_COMM_WORLD);
//   auto engine = plugin.shard(module, config, ranks.table());
//
// Every rank makes one. It outlives the engine and ends before MPI_Finalize. What engines on meshes split from it ends
// with it: a host that shards again and again makes a new one each time.
//
// MPI must have been initialised with MPI_THREAD_SERIALIZED or more where backward runs on another thread than shard(),
// as it does on CUDA; with less, such a backward ends with an error that says so.
#ifndef FSDP2_MPI_H
#define FSDP2_MPI_H

#include <fsdp2/plugin.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp2 {
inline namespace v0_1 {

/// A duplicate of a communicator of the host's, so that no message of the host's meets one of an engine's. Its errors
/// are returned, never fatal. Neither copies nor moves: engines hold its address.
class MpiCommunicator {
 public:
  /// Throws std::runtime_error where MPI is not initialised or the duplicate cannot be made. `largest_transfer`: bytes
  /// that one MPI call moves between two ranks; more goes in several, since MPI counts in 32 bits. [collective over
  /// `group`]
  explicit MpiCommunicator(MPI_Comm group, int64_t largest_transfer = int64_t{1} << 30) : largest_(largest_transfer) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0)
      throw std::runtime_error("MpiCommunicator: MPI is not initialised; call MPI_Init_thread first");
    if (largest_ < 1 || largest_ > INT32_MAX)
      throw std::runtime_error("MpiCommunicator: largest_transfer must be 1 to 2147483647");
    require(MPI_Comm_dup(group, &group_));
    MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN);
    int rank = 0;
    int size = 0;
    int threads = MPI_THREAD_SINGLE;
    require(MPI_Comm_rank(group_, &rank));
    require(MPI_Comm_size(group_, &size));
    MPI_Query_thread(&threads);
    table_.struct_size = sizeof(table_);
    table_.context = this;
    table_.rank = rank;
    table_.world_size = size;
    table_.name = "mpi";
    table_.one_thread = threads < MPI_THREAD_SERIALIZED ? 1 : 0;
    int is_main = 0;
    MPI_Is_thread_main(&is_main);
    if (table_.one_thread != 0 && is_main == 0)
      throw std::runtime_error(
          "MpiCommunicator: MPI was initialised for its main thread only, and this is another one");
    table_.all_gather = &all_gather;
    table_.all_to_all = &all_to_all;
    table_.test = &test;
    table_.split = &split;
  }

  /// Frees the duplicate, unless MPI was finalised before. [collective, where MPI's own MPI_Comm_free is]
  ~MpiCommunicator() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && requests_.empty()) MPI_Comm_free(&group_);
    for (auto& pending : requests_) static_cast<void>(pending.release());  // given up, but MPI may still use it
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  /// For fsdp2_shard_args, or Plugin::shard. Valid as long as this object.
  [[nodiscard]] const fsdp2_communicator& table() const noexcept { return table_; }

 private:
  /// One transfer, in one or several pieces; MPI may look at the types until they have ended.
  struct Request {
    std::vector<MPI_Request> pieces;
    std::vector<MPI_Datatype> types;
    Request() = default;
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    ~Request() {
      for (MPI_Datatype& type : types) MPI_Type_free(&type);
    }
  };

  static std::string text_of(int code) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    return {text, static_cast<size_t>(length)};
  }
  static void require(int code) {
    if (code != MPI_SUCCESS) throw std::runtime_error("MpiCommunicator: " + text_of(code));
  }

  const char* fault(int code) {
    fault_ = text_of(code);
    return fault_.c_str();
  }

  /// `length` bytes at a time of the place of each rank, which is `stride` long.
  static int strided(int64_t length, int64_t stride, MPI_Datatype* type) {
    MPI_Datatype block = MPI_DATATYPE_NULL;
    int code = MPI_Type_contiguous(static_cast<int>(length), MPI_BYTE, &block);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_resized(block, 0, static_cast<MPI_Aint>(stride), type);
    MPI_Type_free(&block);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
  }

  /// Calls `start(offset, length, type of one rank's place, request)` for pieces of at most largest_ bytes.
  template <typename Start>
  const char* in_pieces(int64_t bytes, void** request, const Start& start) {
    try {
      requests_.push_back(std::make_unique<Request>());  // stays after a fault too: what has begun goes on
      Request& pending = *requests_.back();
      for (int64_t offset = 0; offset < bytes; offset += largest_) {
        const int64_t length = std::min(largest_, bytes - offset);
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_Request piece = MPI_REQUEST_NULL;
        int code = strided(length, bytes, &type);
        if (type != MPI_DATATYPE_NULL) pending.types.push_back(type);
        if (code == MPI_SUCCESS) code = start(offset, static_cast<int>(length), type, &piece);
        if (piece != MPI_REQUEST_NULL) pending.pieces.push_back(piece);
        if (code != MPI_SUCCESS) return fault(code);
      }
      *request = &pending;
      return nullptr;
    } catch (...) {
      return "out of memory";
    }
  }

  static const char* all_gather(void* context, void* output, const void* input, int64_t bytes, void* /*stream*/,
                                void** request) {
    auto& self = *static_cast<MpiCommunicator*>(context);
    auto* out = static_cast<char*>(output);
    const auto* in = static_cast<const char*>(input);
    const bool in_place = in == out + self.table_.rank * bytes;
    return self.in_pieces(bytes, request, [&](int64_t offset, int length, MPI_Datatype type, MPI_Request* one) {
      return MPI_Iallgather(in_place ? MPI_IN_PLACE : in + offset, length, MPI_BYTE, out + offset, 1, type, self.group_,
                            one);
    });
  }

  static const char* all_to_all(void* context, void* output, const void* input, int64_t bytes, void* /*stream*/,
                                void** request) {
    auto& self = *static_cast<MpiCommunicator*>(context);
    return self.in_pieces(bytes, request, [&](int64_t offset, int /*length*/, MPI_Datatype type, MPI_Request* one) {
      return MPI_Ialltoall(static_cast<const char*>(input) + offset, 1, type, static_cast<char*>(output) + offset, 1,
                           type, self.group_, one);
    });
  }

  static const char* test(void* context, void* request, int32_t* done) {
    auto& self = *static_cast<MpiCommunicator*>(context);
    auto* pending = static_cast<Request*>(request);
    int flag = 0;
    const int code =
        MPI_Testall(static_cast<int>(pending->pieces.size()), pending->pieces.data(), &flag, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) return self.fault(code);
    *done = flag;
    if (flag != 0) {
      self.requests_.erase(std::find_if(self.requests_.begin(), self.requests_.end(),
                                        [&](const auto& known) { return known.get() == pending; }));
    }
    return nullptr;
  }

  // Colour: the lowest rank of each group.
  static const char* split(void* context, const int64_t* members, int64_t count, fsdp2_communicator* part) {
    auto& self = *static_cast<MpiCommunicator*>(context);
    MPI_Comm group = MPI_COMM_NULL;
    const int code = count < 1 ? MPI_ERR_ARG
                               : MPI_Comm_split(self.group_, static_cast<int>(members[0]),
                                                static_cast<int>(self.table_.rank), &group);
    if (code != MPI_SUCCESS) return self.fault(code);
    try {
      self.parts_.push_back(std::make_unique<MpiCommunicator>(group, self.largest_));
      MPI_Comm_free(&group);  // the part has a duplicate
      *part = self.parts_.back()->table_;
      return nullptr;
    } catch (const std::exception& error) {
      MPI_Comm_free(&group);
      self.fault_ = error.what();
      return self.fault_.c_str();
    }
  }

  int64_t largest_;
  MPI_Comm group_ = MPI_COMM_NULL;
  fsdp2_communicator table_{};
  std::string fault_;
  std::vector<std::unique_ptr<Request>> requests_;  // in flight
  std::vector<std::unique_ptr<MpiCommunicator>> parts_;
};

}  // namespace v0_1
}  // namespace fsdp2

#endif  // FSDP2_MPI_H
