/* The C ABI of libfsdp2_plugin.so: the one header a host must have. C11 and C++11 clean, free of LibTorch.
 *
 * A host opens the library with dlopen(path, RTLD_NOW | RTLD_LOCAL), reads the constant `fsdp2_plugin_manifest`,
 * compares it with its own LibTorch, and asks `fsdp2_plugin_get_api` for the table. C++ hosts include plugin.hpp, which
 * does that.
 *
 * Rules
 * - Every struct begins with `struct_size`. The caller sets it to the size it was compiled with; the callee reads
 *   min(struct_size, its own size) and takes missing fields as zero. Structs only grow at the end.
 * - New behaviour is a new entry at the end of the table: a host tests `api->struct_size` before it uses one.
 *   No entry is null.
 * - Enums get new values: a code that a host does not know is a fault like the others. Fields called reserved are 0.
 * - A call returns null for success, else a status that the caller releases. No C++ exception leaves a call.
 * - Handles are opaque. Who receives one releases it with the call named beside it; releasing null does nothing. One
 *   that was released, or is of another kind, gets FSDP2_INVALID_ARGUMENT, or what null gets where no
 *   status is returned.
 * - Strings are UTF-8. Those that come out live as long as the handle they came from, or as the library.
 * - LibTorch objects cross as borrowed pointers, valid during the call; the library takes references of its own.
 * - The library never prints, never exits, never aborts; it logs through the host's callback only.
 * - Once loaded it stays: dlclose leaves it in memory, since compiled TorchScript graphs may hold its operators.
 *
 * Marks on each call
 *   [any]        any thread, any time after initialize
 *   [trainer]    one thread at a time for one engine
 *   [collective] every rank of the engine's group calls it, in the same order; it may wait for the others
 */
#ifndef FSDP2_PLUGIN_H
#define FSDP2_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FSDP2_VERSION_MAJOR 0
#define FSDP2_VERSION_MINOR 1
#define FSDP2_VERSION_PATCH 0

/* A host and a library of the same major understand each other. */
#define FSDP2_ABI_MAJOR 1
#define FSDP2_ABI_MINOR 1

#define FSDP2_MANIFEST_MAGIC UINT64_C(0x324e414d50445346) /* "FSDPMAN2" in memory, little endian */

/* ---- the manifest: constant data, readable before any code of the library runs ---------------------------------- */

/* What the library was built for. A host must refuse the library unless every LibTorch field equals its own value. */
typedef struct fsdp2_manifest {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t reserved;
  uint64_t magic;
  uint64_t
      torch_abi_version; /* TORCH_ABI_VERSION of the headers; equals aoti_torch_abi_version() of the right LibTorch */
  uint32_t cxx11_abi;    /* _GLIBCXX_USE_CXX11_ABI */
  uint32_t sizeof_tensor_impl;
  uint32_t sizeof_ivalue;
  uint32_t sizeof_jit_module;
  uint32_t sizeof_jit_operator;
  uint32_t cuda_version; /* CUDA_VERSION, 0 = built without CUDA */
  uint32_t nccl_version; /* NCCL_VERSION_CODE, 0 = built without NCCL */
  uint32_t reserved2;
  char torch_version[32];  /* "2.11.0" */
  char plugin_version[32]; /* "0.1.0" */
} fsdp2_manifest;

/* ---- status ------------------------------------------------------------------------------------------------------ */

typedef int32_t fsdp2_code;
enum {
  FSDP2_OK = 0,
  FSDP2_INVALID_ARGUMENT = 1,
  FSDP2_CONFIG = 2,              /* a configuration file or key is wrong */
  FSDP2_NOT_FOUND = 3,           /* no such file, strategy, module, ... */
  FSDP2_UNSUPPORTED = 4,         /* known, but this build cannot do it */
  FSDP2_FAILED_PRECONDITION = 5, /* right call, wrong moment */
  FSDP2_VERSION_MISMATCH = 6,    /* another LibTorch, another ABI */
  FSDP2_ALREADY_LOADED = 7,      /* another copy of the library is active in this process */
  FSDP2_COMMUNICATION = 8,       /* another rank failed, left or did not answer */
  FSDP2_OUT_OF_MEMORY = 9,
  FSDP2_INTERNAL = 10
};

typedef struct fsdp2_status fsdp2_status; /* release: status_release */

/* ---- handles ----------------------------------------------------------------------------------------------------- */

typedef struct fsdp2_config fsdp2_config;   /* immutable options; release: config_release */
typedef struct fsdp2_engine fsdp2_engine;   /* a sharded module; release: engine_release */
typedef struct fsdp2_call fsdp2_call;       /* a unit between enter and exit; release: call_release */
typedef struct fsdp2_unshard fsdp2_unshard; /* gathers in flight; release: unshard_release */

/* ---- argument structs -------------------------------------------------------------------------------------------- */

typedef int32_t fsdp2_log_level;
enum { FSDP2_LOG_INFO = 0, FSDP2_LOG_WARNING = 1 };

/* `text` is valid during the call only and not null-terminated beyond `length`. May be called from any thread. */
typedef void (*fsdp2_log_function)(void* user, fsdp2_log_level level, const char* text, size_t length);

typedef struct fsdp2_host_info {
  size_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint64_t torch_abi_version;  /* the host's TORCH_ABI_VERSION; 0 = the host was built without LibTorch's headers */
  const void* torch_abi_entry; /* address of the host's aoti_torch_abi_version; null = unknown */
  fsdp2_log_function log;      /* null = silent */
  void* log_user;
} fsdp2_host_info;

typedef struct fsdp2_config_args {
  size_t struct_size;
  const char* path;             /* a TOML file with a table [fsdp]; or null, then `text` */
  const char* text;             /* TOML text with a table [fsdp] */
  const char* const* overrides; /* "key=value" below [fsdp], for example "wrap.policy=size"; they win over the file */
  size_t override_count;
  /* The keys of another host as "name=value", in place of the file that `config` would name; null: there are none. They
   * are those of `dialect` in the TOML or the overrides: "accelerate", "transformers", "deepspeed" or "torch_fsdp1".
   * Where the overrides say enough, `path` and `text` may both be null. `config` beside them is an error; a list of no
   * keys that is not null is one that says nothing. At most 1 MiB.
   * "cpu_offload=true", "zero_optimization.stage=3" (in a map): a keyword, its value is TOML, or True, False or None,
   * or else a bare word. "FSDP_VERSION=2", in capitals: a variable, its value is text. The environment of the process
   * is not read for them; what counts there the host puts into the list. */
  const char* const* host_keys;
  size_t host_key_count;
} fsdp2_config_args;

/* What the pointer in `fsdp2_shard_args.communicator` is. */
typedef int32_t fsdp2_communicator_kind;
enum {
  FSDP2_COMMUNICATOR_ENVIRONMENT = 0,        /* null: made from what the launcher set, see launch_environment.hpp */
  FSDP2_COMMUNICATOR_C10D_BACKEND = 1,       /* const c10::intrusive_ptr<c10d::Backend>*: Gloo's and NCCL's groups */
  FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP = 2, /* const c10::intrusive_ptr<c10d::ProcessGroup>* */
  FSDP2_COMMUNICATOR_CALLBACKS = 3           /* const fsdp2_communicator* */
};

/* A transport of the host's own: an MPI_Comm (fsdp2/mpi.h fills this from one), a raw ncclComm_t, whatever moves bytes.
 * The library copies the struct; `context` must live until the engines that use it are released, and may serve several.
 *
 * Two collectives are enough: sums are the library's own, over bytes that came from all_to_all, in rank order. So every
 * dtype works on every transport, with the same bits.
 *
 * A start returns null and sets *request, or returns an error text that lives until the next call with this context.
 * *request = null says that the result is there, or will be for work that follows on `stream`. All ranks start the same
 * collectives in the same order; several may be in flight. Memory is that of the parameters: host memory, or of a
 * device, then with its current `stream` (a cudaStream_t; null on the CPU). The library tests until a request is done
 * or debug.timeout_s has passed. After a fault the engine makes no further call, and does not use again what a start
 * was given, failed or not: what had begun may still be written. Nothing may be thrown. */
typedef struct fsdp2_communicator {
  size_t struct_size;
  void* context;
  int64_t rank;
  int64_t world_size;
  const char* name;   /* "mpi": for messages */
  int32_t one_thread; /* not 0: only the thread that calls shard may call; a backward elsewhere gets an error */
  int32_t reserved;
  /* output + r * bytes receives rank r's input, for every r. `input` has `bytes`; it may be this rank's place in
   * output. */
  const char* (*all_gather)(void* context, void* output, const void* input, int64_t bytes, void* stream,
                            void** request);
  /* output + r * bytes receives input + (this rank) * bytes of rank r. Both have world_size * bytes and do not overlap.
   */
  const char* (*all_to_all)(void* context, void* output, const void* input, int64_t bytes, void* stream,
                            void** request);
  /* Sets *done to 1 when the request has ended, which frees it; to 0 while it runs. Makes progress. Does not wait. */
  const char* (*test)(void* context, void* request, int32_t* done);
  /* May be null: then a mesh of two dimensions needs shard_communicator and replicate_communicator, and
   * `reshard_after_forward` cannot be a number of ranks. Fills `part`, whose struct_size is set, with the communicator
   * of `count` ranks of this one: `members`, ascending, this rank among them.
   * Every rank calls it in the same order, each with the group that it belongs to. Lives as long as `context`. */
  const char* (*split)(void* context, const int64_t* members, int64_t count, struct fsdp2_communicator* part);
} fsdp2_communicator;

typedef struct fsdp2_shard_args {
  size_t struct_size;
  const fsdp2_config* config;
  void* module; /* torch::jit::Module*; sharded in place */
  fsdp2_communicator_kind communicator_kind;
  int32_t reserved;
  const void* communicator;
  const char* backend; /* ENVIRONMENT only: "gloo", "nccl", or null = by the device of the parameters */
  /* For a mesh of two dimensions, of communicator's kind: the ranks that hold the parts of the parameters between them
   * (rank r is number r % mesh.shard among them), and those that hold the same part. Null: split from `communicator`.
   */
  const void* shard_communicator;
  const void* replicate_communicator;
} fsdp2_shard_args;

/* For hosts that write their forward in C++ (torch::nn::Module): parameters as tensors instead of a scripted module. */
typedef struct fsdp2_shard_tensors_args {
  size_t struct_size;
  const fsdp2_config* config;
  const char* const* names;   /* as named_parameters() gives them, "layers.0.weight": dots make the tree of modules */
  const void* const* tensors; /* const at::Tensor* each; the same tensor under two names is tied */
  size_t count;
  const char* const*
      units; /* paths of the modules that are units ("layers.0"), beside the root; null: by wrap.policy */
  size_t unit_count;
  fsdp2_communicator_kind communicator_kind; /* as in fsdp2_shard_args */
  int32_t reserved;
  const void* communicator;
  const char* backend;
  const void* shard_communicator; /* as in fsdp2_shard_args */
  const void* replicate_communicator;
} fsdp2_shard_tensors_args;

typedef struct fsdp2_plan_args {
  size_t struct_size;
  const fsdp2_config* config;
  const void* module; /* const torch::jit::Module*; not changed */
  int64_t world_size;
  int64_t ranks_per_node; /* for hybrid strategies without a mesh; 0 = not known */
} fsdp2_plan_args;

/* Called once a parameter, in plan order. `name` is valid during the call; `tensor` is a const at::Tensor* (the sharded
 * leaf tensor to give to an optimizer; empty on ranks that own no element), valid during the call: copy the handle. */
typedef void (*fsdp2_parameter_visitor)(void* user, const char* name, size_t name_length, const void* tensor);

/* Which part of a parameter this rank owns. Pointers are valid during the visit. */
typedef struct fsdp2_shard_geometry {
  size_t struct_size;
  const char* name;     /* null-terminated */
  const void* tensor;   /* const at::Tensor*, the sharded leaf */
  const int64_t* shape; /* of the full parameter */
  size_t dims;
  int64_t begin; /* the shard is elements [begin, end) of the flattened full parameter */
  int64_t end;
  int32_t whole_rows; /* 1: the shard has the shape [rows, ...] of dimension 0; 0: it begins or ends inside a row and is
                         flat */
  int32_t trainable;
} fsdp2_shard_geometry;
typedef void (*fsdp2_geometry_visitor)(void* user, const fsdp2_shard_geometry* geometry);

/* Counters of the units' own collectives since shard() or the last reset. A gather or a reduction is one collective of
 * one buffer (a unit has one a dtype, trainable and frozen parameters apart); bytes are those of the whole buffer (all
 * ranks' parts, padding included). World of 1: all zero but the memory. */
typedef struct fsdp2_statistics {
  size_t struct_size;
  int64_t all_gathers;
  int64_t all_gather_bytes;
  int64_t reduce_scatters;
  int64_t reduce_scatter_bytes;
  int64_t all_reduces; /* over replicas: no_shard, and meshes of two dimensions */
  int64_t all_reduce_bytes;
  int64_t stale_gathers;        /* gathers of a kept unit because its shards had been written */
  int64_t unsharded_bytes;      /* bytes of gathered parameters now, whole or kept in a block, beside the shards */
  int64_t unsharded_peak_bytes; /* the most since the last reset */
  int64_t planned_peak_bytes;   /* what the plan promises for it */
  int64_t shard_bytes;          /* bytes of parameters that this rank holds at rest, padding included */
  int64_t parameter_bytes;      /* bytes of all parameters, each once */
  int64_t padding_bytes;        /* padding over all ranks */
  int64_t wrap_peak_bytes;      /* originals and shards alive together, the most while shard() ran */
  int64_t units;
  int64_t rank;
  int64_t world_size;
} fsdp2_statistics;

/* ---- the table ----------------------------------------------------------------------------------------------------
 */

typedef struct fsdp2_api {
  size_t struct_size;

  /* status [any] */
  fsdp2_code (*status_code)(const fsdp2_status* status); /* FSDP2_OK for null */
  const char* (*status_message)(const fsdp2_status* status);
  /* One of "file", "line", "column", "key", "module", "parameter", "rank", "nearest". Null where unknown. */
  const char* (*status_detail)(const fsdp2_status* status, const char* name);
  void (*status_release)(fsdp2_status* status);

  /* life. Counted: each initialize wants its shutdown, with the same log and log_user; the last one fails while engines
   * live. Lines go to the log that was given last; once its shutdown has returned, a log is called no more. [any] */
  fsdp2_status* (*initialize)(const fsdp2_host_info* host);
  fsdp2_status* (*shutdown)(const fsdp2_host_info* host);

  /* catalogue of what is built in; what the libraries in `plugins` register is in the notes of the configuration that
   * names them. Names and texts live as long as the library. Null past the end. [any] */
  size_t (*strategy_count)(void);
  const char* (*strategy_name)(size_t index);
  const char* (*strategy_help)(size_t index);
  size_t (*dialect_count)(void);
  const char* (*dialect_name)(size_t index);
  const char* (*dialect_help)(size_t index);

  /* config [any]. Opens the libraries in `plugins` and FSDP2_PLUGINS (fsdp2/extension.h). Warnings and notes also go to
   * the log. FSDP2_CONFIG for what is wrong in the file, an override or one of `host_keys`, by its name. */
  fsdp2_status* (*config_load)(const fsdp2_config_args* args, fsdp2_config** out);
  const char* (*config_toml)(const fsdp2_config* config);    /* canonical TOML of every option */
  const char* (*config_warning)(const fsdp2_config* config); /* the one warning of the adapter, or "" */
  size_t (*config_note_count)(const fsdp2_config* config);
  const char* (*config_note)(const fsdp2_config* config, size_t index);
  void (*config_release)(fsdp2_config* config);

  /* The plan of a module for a number of ranks, as a table for a person, in `out` (release: text_release). No ranks, no
   * communication. [any] */
  fsdp2_status* (*plan_text)(const fsdp2_plan_args* args, char** out);
  void (*text_release)(char* text);

  /* Shards the module in place: replaces the parameters in its slots by this rank's shards and the methods of its
   * classes by instrumented ones. Frees each original as its shard is cut. [trainer, collective] */
  fsdp2_status* (*shard)(const fsdp2_shard_args* args, fsdp2_engine** out);
  /* Gathers every parameter, puts plain tensors and the original methods back. The engine is then only good for
   * release. [trainer, collective] */
  fsdp2_status* (*engine_detach)(fsdp2_engine* engine);
  /* Without a detach before, a scripted module is left unusable, and says so; tensors of shard_tensors stay shards.
   * [trainer] */
  void (*engine_release)(fsdp2_engine* engine);

  /* [trainer] */
  fsdp2_status* (*engine_visit_parameters)(const fsdp2_engine* engine, fsdp2_parameter_visitor visitor, void* user);
  /* Fills as many fields as out->struct_size covers. [trainer] */
  fsdp2_status* (*engine_statistics)(const fsdp2_engine* engine, fsdp2_statistics* out);
  fsdp2_status* (*engine_reset_statistics)(fsdp2_engine* engine);
  /* The plan that shard() made, as plan_text has it; lives as long as the engine. [any] */
  const char* (*engine_plan_text)(const fsdp2_engine* engine);
  /* Says that shards were written in a way that version counters do not see (through `.data`, or by another library):
   * units that are kept whole gather again at their next use. [trainer] */
  fsdp2_status* (*engine_mark_written)(fsdp2_engine* engine);

  /* Puts full parameters, without gradients, into the module on every rank, until engine_release_gathered. In between
   * each rank may run any number of forwards on its own, and read, copy and write the parameters, as of a plain module;
   * backward is refused. Takes the memory of the whole model. [trainer, collective] */
  fsdp2_status* (*engine_gather)(fsdp2_engine* engine);
  /* Shards again. `write_back` not 0: what was written into the full parameters stays, each rank taking its part (all
   * must have written the same); else it is lost. [trainer] */
  fsdp2_status* (*engine_release_gathered)(fsdp2_engine* engine, int32_t write_back);

  /* ---- gradients, between backward and the optimizer's step: all trainable parameters, each tied one once, without
   * those of `ignored_modules` ---- */

  /* The norm of all gradients together, the same number on every rank: sum of |g|^p to the 1/p, or the greatest |g|
   * where p is infinity. FSDP2_INVALID_ARGUMENT unless p > 0. Sums are taken in fp64. [trainer, collective] */
  fsdp2_status* (*engine_gradient_norm)(fsdp2_engine* engine, double p, double* norm);
  /* Scales all gradients by max_norm / (norm + 1e-6) where that is below 1, as torch.nn.utils.clip_grad_norm_ does.
   * `norm` (may be null) is that before; one that is not finite makes gradients not finite, as there. [trainer,
   * collective] */
  fsdp2_status* (*engine_clip_gradient_norm)(fsdp2_engine* engine, double max_norm, double p, double* norm);
  /* Every element into [-limit, limit]. [trainer, collective while debug.check_steps counts] */
  fsdp2_status* (*engine_clip_gradient_value)(fsdp2_engine* engine, double limit);
  /* Gradients are undefined afterwards, as with set_to_none. [trainer, collective where a pass left sums in flight] */
  fsdp2_status* (*engine_zero_gradients)(fsdp2_engine* engine);
  /* Divides all gradients by `scale`; *found_inf is 1 on every rank where any rank has one that is not finite: skip the
   * step then, as a GradScaler does. [trainer, collective] */
  fsdp2_status* (*engine_unscale_gradients)(fsdp2_engine* engine, double scale, int32_t* found_inf);
  /* FSDP2_FAILED_PRECONDITION, on every rank and with a parameter's name, where gradients or shards have changed since
   * the end of backward by anything but the calls here: a host that averages gradients itself trains wrong. Call it
   * before the optimizer's step. Forwards after a backward look at gradients by themselves, until an optimizer has
   * stepped debug.check_steps times; then neither does anything. [trainer, collective] */
  fsdp2_status* (*engine_check_step)(fsdp2_engine* engine);

  /* ---- shards one by one, for optimizers and files that need whole matrices ---- */

  /* In plan order. [trainer] */
  fsdp2_status* (*engine_visit_geometry)(const fsdp2_engine* engine, fsdp2_geometry_visitor visitor, void* user);
  /* The full tensor of which each rank gives its part: `shard` is a const at::Tensor* as large as the shard of
   * parameter `name` (the shard, its gradient, an optimizer's state of it), of one dtype on all ranks. `out` is an
   * at::Tensor*; where `rank` is not -1 only that rank's is set. [trainer, collective] */
  fsdp2_status* (*engine_gather_tensor)(fsdp2_engine* engine, const char* name, const void* shard, int64_t rank,
                                        void* out);

  /* Writes the module as a plain TorchScript file while it stays sharded: `source`, the file it was loaded from, with
   * today's parameters and buffers; code, constants and other attributes are the file's. Rank 0 alone reads and writes,
   * its buffers count, one full parameter is in memory at a time; `target` appears when it is whole. A fault is one on
   * every rank. [trainer, collective] */
  fsdp2_status* (*engine_export_module)(fsdp2_engine* engine, const char* source, const char* target);
  /* Takes parameters and buffers from a TorchScript file of the same model, each rank its own parts; optimizer state
   * and gradients stay. Nothing is changed where a rank has a fault, which is then one on every rank. [trainer,
   * collective] */
  fsdp2_status* (*engine_load_weights)(fsdp2_engine* engine, const char* source);

  /* ---- hosts that write their forward in C++ ---- */

  /* Shards tensors in place: from now on each shows this rank's shard, and the full parameter between enter and exit of
   * its unit (and in its backward). They stay the same tensors, so the modules that hold them and optimizers that were
   * made with them need no change. All entries above but engine_export_module and engine_load_weights serve such
   * an engine too. The host must enter every unit that the plan lists: at rest its tensors are shards. [trainer,
   * collective] */
  fsdp2_status* (*shard_tensors)(const fsdp2_shard_tensors_args* args, fsdp2_engine** out);
  /* Before the forward of the module at `path` ("" = the root): gathers its unit. `tensors` are at::Tensor* each: the
   * tensors that go in; each is replaced by the one to compute with. A module that is no unit is passed through.
   * FSDP2_NOT_FOUND names the nearest path. Calls nest as forwards do. [trainer, collective] */
  fsdp2_status* (*engine_enter)(fsdp2_engine* engine, const char* path, void* const* tensors, size_t count,
                                fsdp2_call** out);
  /* After it: `tensors` are what comes out, each replaced by the one for the caller. Once a call. [trainer] */
  fsdp2_status* (*call_exit)(fsdp2_call* call, void* const* tensors, size_t count);
  /* Without an exit before (a forward that threw) the unit goes back to rest. [trainer] */
  void (*call_release)(fsdp2_call* call);

  /* ---- gradient accumulation and reduction, for the backward passes to come; as in PyTorch's FSDP2. Of the unit at
   * `path` ("" = the root) and, with `recurse` not 0, of the units inside it; FSDP2_NOT_FOUND names the nearest path.
   * All ranks must do the same. ---- */

  /* 0: passes keep their full gradients on this rank, unreduced, in the dtype of reductions; the first pass after it is
   * not 0 again reduces the sum. Until then gradients of shards do not change. engine_zero_gradients drops what is
   * kept, an optimizer's own zero_grad does not. [trainer] */
  fsdp2_status* (*engine_set_gradient_sync)(fsdp2_engine* engine, const char* path, int32_t recurse, int32_t on);
  /* 0: on a mesh of two dimensions passes reduce over the ranks that shard, not over the replicas; the sums wait for
   * the first pass after it is not 0 again. [trainer] */
  fsdp2_status* (*engine_set_all_reduce)(fsdp2_engine* engine, const char* path, int32_t recurse, int32_t on);
  /* Sums over ranks are divided by `divisor`, at least 0; 0: by the number of ranks. Change it while no sums wait or
   * are in flight (the two entries around this one): those were divided already, in part. [trainer, collective where
   * a pass left sums in flight] */
  fsdp2_status* (*engine_set_gradient_divisor)(fsdp2_engine* engine, const char* path, int32_t recurse, double divisor);
  /* 0: passes leave their last sums of gradients in flight, to end behind the next pass or in the next call here that
   * reads gradients; until then gradients of shards are not complete. For all but the last of several backward passes
   * before a step. Of the whole engine. [trainer] */
  fsdp2_status* (*engine_set_last_backward)(fsdp2_engine* engine, int32_t on);

  /* ---- units by hand, named as above ---- */

  /* Gathers units that are not whole, or not as the shards are now, in the dtype in which they compute. Only memory:
   * the module's slots go on showing shards, and the next forward finds its unit whole; while shards have gradients it
   * gathers again, since an optimizer may have stepped in between. With `out` the gathers are only started;
   * unshard_wait ends them, or the forward that needs them; a null `out` waits. [trainer, collective] */
  fsdp2_status* (*engine_unshard)(fsdp2_engine* engine, const char* path, int32_t recurse, fsdp2_unshard** out);
  /* Any number of times; nothing to do after engine_release. [trainer] */
  fsdp2_status* (*unshard_wait)(fsdp2_unshard* unshard);
  void (*unshard_release)(fsdp2_unshard* unshard);
  /* Frees units that are kept whole, once their gathers have ended. FSDP2_FAILED_PRECONDITION inside a forward or a
   * backward of one of them. [trainer]
   */
  fsdp2_status* (*engine_reshard)(fsdp2_engine* engine, const char* path, int32_t recurse);
  /* Whether units are freed after forward (else kept until backward), in place of `reshard_after_forward`; and after
   * backward (else kept until the next forward has used them; by default they are freed). [trainer] */
  fsdp2_status* (*engine_set_reshard_after_forward)(fsdp2_engine* engine, const char* path, int32_t recurse,
                                                    int32_t reshard);
  fsdp2_status* (*engine_set_reshard_after_backward)(fsdp2_engine* engine, const char* path, int32_t recurse,
                                                     int32_t reshard);
  /* When a forward of the unit at `path` begins, the `count` units at the paths `ahead` are gathered, in place of those
   * that `prefetch` would; `backward` not 0: the same for its backward. 0 units: as `prefetch` says again. A wrong
   * guess costs a gather. As PyTorch's set_modules_to_forward_prefetch. The same on all ranks. [trainer] */
  fsdp2_status* (*engine_set_prefetch)(fsdp2_engine* engine, const char* path, const char* const* ahead, size_t count,
                                       int32_t backward);

  /* engine_clip_gradient_norm by what the configuration says, `gradient.clip_norm` with p = 2: a host that calls it
   * between backward and the optimizer's step clips as another host's file asks it to. *configured is 1, and *norm the
   * norm before; without the key nothing is done, and both are 0. Either may be null. With the key, shard and
   * shard_tensors log that the host has to call it; a forward after a step before any clipping by a norm warns, once.
   * FSDP2_FAILED_PRECONDITION inside a pass, under engine_gather, and for what engine_check_step finds. [trainer,
   * collective where it clips] */
  fsdp2_status* (*engine_clip_gradients)(fsdp2_engine* engine, int32_t* configured, double* norm);
} fsdp2_api;

/* ---- the two exports ----------------------------------------------------------------------------------------------
 */

#define FSDP2_MANIFEST_SYMBOL "fsdp2_plugin_manifest" /* const fsdp2_manifest */
#define FSDP2_GET_API_SYMBOL "fsdp2_plugin_get_api"   /* fsdp2_get_api_function */

/* The table for an ABI major, or null for one the library does not know. Touches no LibTorch. [any] */
typedef const fsdp2_api* (*fsdp2_get_api_function)(uint32_t abi_major);

#ifdef __cplusplus
}
#endif
#endif /* FSDP2_PLUGIN_H */
