/* The C ABI of libfsdp2_plugin.so: the one header a host must have. C11 and C++11 clean, free of LibTorch.
 *
 * A host opens the library with dlopen(path, RTLD_NOW | RTLD_LOCAL), reads the constant `fsdp2_plugin_manifest`, compares
 * it with its own LibTorch, and asks `fsdp2_plugin_get_api` for the table. C++ hosts include plugin.hpp, which does that.
 *
 * Rules
 * - Every struct begins with `struct_size`. The caller sets it to the size it was compiled with; the callee reads
 *   min(struct_size, its own size) and takes missing fields as zero. Structs only grow at the end.
 * - New behaviour is a new entry at the end of the table: a host tests `api->struct_size` before it uses one. No entry is null.
 * - A call returns null for success, else a status that the caller releases. No C++ exception leaves a call.
 * - Handles are opaque. Who receives one releases it with the call named beside it; releasing null does nothing.
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

/* A host and a library of the same major (while it is 0: the same minor too) understand each other. */
#define FSDP2_ABI_MAJOR 0
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
  uint64_t torch_abi_version; /* TORCH_ABI_VERSION of the headers; equals aoti_torch_abi_version() of the right LibTorch */
  uint32_t cxx11_abi;         /* _GLIBCXX_USE_CXX11_ABI */
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

typedef struct fsdp2_config fsdp2_config; /* immutable options; release: config_release */
typedef struct fsdp2_engine fsdp2_engine; /* a sharded module; release: engine_release */

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
} fsdp2_config_args;

/* What the pointer in `fsdp2_shard_args.communicator` is. The two c10d classes are not related: the wrong tag would read
 * another class's memory. */
typedef int32_t fsdp2_communicator_kind;
enum {
  FSDP2_COMMUNICATOR_ENVIRONMENT = 0,  /* null: made from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun's) */
  FSDP2_COMMUNICATOR_C10D_BACKEND = 1, /* const c10::intrusive_ptr<c10d::Backend>*: Gloo's and NCCL's groups */
  FSDP2_COMMUNICATOR_C10D_PROCESS_GROUP = 2 /* const c10::intrusive_ptr<c10d::ProcessGroup>* */
};

typedef struct fsdp2_shard_args {
  size_t struct_size;
  const fsdp2_config* config;
  void* module; /* torch::jit::Module*; sharded in place */
  fsdp2_communicator_kind communicator_kind;
  int32_t reserved;
  const void* communicator;
  const char* backend; /* ENVIRONMENT only: "gloo", "nccl", or null = by the device of the parameters */
} fsdp2_shard_args;

typedef struct fsdp2_plan_args {
  size_t struct_size;
  const fsdp2_config* config;
  const void* module; /* const torch::jit::Module*; not changed */
  int64_t world_size;
} fsdp2_plan_args;

/* Called once a parameter, in plan order. `name` is valid during the call; `tensor` is a const at::Tensor* (the sharded
 * leaf tensor to give to an optimizer; empty on ranks that own no element), valid during the call: copy the handle. */
typedef void (*fsdp2_parameter_visitor)(void* user, const char* name, size_t name_length, const void* tensor);

/* Counters since shard() or the last reset. A gather or a reduction is one collective of one buffer (a unit has one a dtype,
 * trainable and frozen parameters apart); bytes are those of the whole buffer (all ranks' parts, padding included). World
 * of 1: all zero but the memory. */
typedef struct fsdp2_statistics {
  size_t struct_size;
  int64_t all_gathers;
  int64_t all_gather_bytes;
  int64_t reduce_scatters;
  int64_t reduce_scatter_bytes;
  int64_t all_reduces; /* no_shard */
  int64_t all_reduce_bytes;
  int64_t stale_gathers;         /* gathers of a kept unit because its shards had been written */
  int64_t unsharded_bytes;       /* bytes of gathered parameters now, beside the shards */
  int64_t unsharded_peak_bytes;  /* the most since the last reset */
  int64_t planned_peak_bytes;    /* what the plan promises for it */
  int64_t shard_bytes;           /* bytes of parameters that this rank holds at rest, padding included */
  int64_t parameter_bytes;       /* bytes of all parameters, each once */
  int64_t padding_bytes;         /* padding over all ranks */
  int64_t wrap_peak_bytes;       /* originals and shards alive together, the most while shard() ran */
  int64_t units;
  int64_t rank;
  int64_t world_size;
} fsdp2_statistics;

/* ---- the table ---------------------------------------------------------------------------------------------------- */

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

  /* catalogue; names and texts live as long as the library. Null past the end. [any] */
  size_t (*strategy_count)(void);
  const char* (*strategy_name)(size_t index);
  const char* (*strategy_help)(size_t index);
  size_t (*dialect_count)(void);
  const char* (*dialect_name)(size_t index);
  const char* (*dialect_help)(size_t index);

  /* config [any]. Warnings and notes of adapters also go to the log. */
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

  /* Shards the module in place: replaces the parameters in its slots by this rank's shards and the methods of its classes
   * by instrumented ones. Frees each original as its shard is cut. [trainer, collective] */
  fsdp2_status* (*shard)(const fsdp2_shard_args* args, fsdp2_engine** out);
  /* Gathers every parameter, puts plain tensors and the original methods back. The engine is then only good for release.
   * [trainer, collective] */
  fsdp2_status* (*engine_detach)(fsdp2_engine* engine);
  /* Without a detach before, the module is left unusable: its slots hold shards. [trainer] */
  void (*engine_release)(fsdp2_engine* engine);

  /* [trainer] */
  fsdp2_status* (*engine_visit_parameters)(const fsdp2_engine* engine, fsdp2_parameter_visitor visitor, void* user);
  /* Fills as many fields as out->struct_size covers. [trainer] */
  fsdp2_status* (*engine_statistics)(const fsdp2_engine* engine, fsdp2_statistics* out);
  fsdp2_status* (*engine_reset_statistics)(fsdp2_engine* engine);
  /* The plan in force, as plan_text has it; lives as long as the engine. [any] */
  const char* (*engine_plan_text)(const fsdp2_engine* engine);
  /* Says that shards were written in a way that version counters do not see (through `.data`, or by another library):
   * units that are kept whole gather again at their next use. [trainer] */
  fsdp2_status* (*engine_mark_written)(fsdp2_engine* engine);

  /* Puts full parameters, without gradients, into the module on every rank, until engine_release_gathered. In between each
   * rank may run any number of forwards on its own, and read, copy and write the parameters, as of a plain module; backward
   * is refused. Takes the memory of the whole model. [trainer, collective] */
  fsdp2_status* (*engine_gather)(fsdp2_engine* engine);
  /* Shards again. `write_back` not 0: what was written into the full parameters stays, each rank taking its part (all must
   * have written the same); else it is lost. [trainer] */
  fsdp2_status* (*engine_release_gathered)(fsdp2_engine* engine, int32_t write_back);
} fsdp2_api;

/* ---- the two exports ---------------------------------------------------------------------------------------------- */

#define FSDP2_MANIFEST_SYMBOL "fsdp2_plugin_manifest" /* const fsdp2_manifest */
#define FSDP2_GET_API_SYMBOL "fsdp2_plugin_get_api"   /* fsdp2_get_api_function */

/* The table for an ABI major, or null for one the library does not know. Touches no LibTorch. [any] */
typedef const fsdp2_api* (*fsdp2_get_api_function)(uint32_t abi_major);

#ifdef __cplusplus
}
#endif
#endif /* FSDP2_PLUGIN_H */
