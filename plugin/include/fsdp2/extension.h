/* Strategies and adapters from outside: what a shared library exports to be named in `[fsdp] plugins = [...]` or in
 * FSDP2_PLUGINS. C11 and C++11 clean, free of LibTorch: such a library sees a model as plain data and links nothing.
 * samples/strategy_plugin is a whole one.
 *
 * Rules, beside those of plugin.h
 * - The library exports `fsdp2_extension_get`, whose table and all that it points to are constant and stay.
 * - It is loaded when a configuration that names it is read, and stays loaded. What it registers serves the
 *   configurations that name it and no others.
 * - Every struct begins with `struct_size`, set by who fills it; structs only grow at the end. Before it uses a field
 *   that is newer than ABI 1.0, a library looks at the `struct_size` of what it was given.
 * - Functions of the library may be called by any thread, several times, also without ranks (to print a plan). They
 *   depend on their input alone: every rank calls for itself, and ranks whose plans differ are refused.
 * - What is passed to them is valid during the call. Strings are UTF-8. No C++ exception may leave them (one that does
 *   is an error like any other).
 */
#ifndef FSDP2_EXTENSION_H
#define FSDP2_EXTENSION_H

#include <fsdp2/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the model, as a strategy sees it ---------------------------------------------------------------------------- */

/* One path in the tree of modules; index 0 is the root, a parent comes before its children. A module that is reached by
 * two paths has two indices. */
typedef struct fsdp2_tree_module {
  size_t struct_size;
  const char* path;       /* from the root, "layers.0"; "" for the root */
  const char* class_name; /* last part of the TorchScript class, "Linear" */
  int64_t parent;         /* -1 for the root */
  int64_t object;         /* the first index of the same module: its own, for most */
  int32_t has_forward;    /* 0: a container, which cannot be a unit */
  int32_t called;         /* 0: no method of the model calls it; chosen, it is passed over, and the plan says so */
  int32_t frozen;         /* 1: by torch.jit.freeze; cannot be a unit */
  int32_t chosen;         /* 1: `wrap.policy`, or the host, would have it as a unit */
} fsdp2_tree_module;

typedef struct fsdp2_tree_parameter {
  size_t struct_size;
  const char* const* names; /* full names; a tied parameter has several, of which the first one is used in messages */
  size_t name_count;
  const int64_t* shape;
  size_t dims;
  const char* dtype; /* PyTorch's name, "bfloat16" */
  int64_t element_size;
  int32_t trainable;
  int32_t reserved;
  const size_t* holders; /* modules of which it is an attribute, one a name */
  size_t holder_count;
  const size_t* readers; /* modules whose methods read it, holders that read it themselves included */
  size_t reader_count;
} fsdp2_tree_parameter;

/* ---- a strategy: from a model and options to a plan -------------------------------------------------------------- */

typedef struct fsdp2_plan_input {
  size_t struct_size;
  const void* context; /* first argument of the functions below */
  size_t module_count;
  size_t parameter_count;
  int64_t world_size;
  int64_t replicate; /* the mesh that the options ask for, replicate x shard; the product is world_size */
  int64_t shard;
  const char* options; /* canonical TOML of every option */
  /* Fill as many fields as out->struct_size covers. Not 0: there is no such index, or struct_size is too small. */
  int32_t (*get_module)(const void* context, size_t index, fsdp2_tree_module* out);
  int32_t (*get_parameter)(const void* context, size_t index, fsdp2_tree_parameter* out);
  /* The strategy's own option of that name, from the table [fsdp.strategy_options]: text as it is, numbers and booleans
   * as TOML writes them. Null where it was not given. */
  const char* (*get_option)(const void* context, const char* name);
} fsdp2_plan_input;

typedef struct fsdp2_unit_choice {
  size_t struct_size;
  size_t module; /* index of the module that becomes a unit */
  /* 0: stays whole until its backward. 1: resharded after its forward. More: resharded to a block of so many ranks, as
   * the key of that name has it; divides the mesh's `shard`. */
  int64_t reshard_after_forward;
} fsdp2_unit_choice;

/* Where a strategy puts what it decides: which modules are units, when they reshard, the mesh. A parameter belongs to
 * the innermost unit that encloses all modules that hold or read it, and lies there as `layout` says. */
typedef struct fsdp2_plan_output {
  size_t struct_size;
  void* context; /* first argument of the functions below */
  /* The root is a unit in any case; without a choice it follows `reshard_after_forward`, as under full_shard. */
  void (*add_unit)(void* context, const fsdp2_unit_choice* choice);
  /* Another mesh than that asked for, of world_size ranks too: world_size x 1 holds everything everywhere. */
  void (*set_mesh)(void* context, int64_t replicate, int64_t shard);
  /* A remark for a person, printed with the plan. */
  void (*add_note)(void* context, const char* text);
  /* Why there is no plan; return not 0 then. `key`: that of [fsdp] at fault, "strategy_options.limit", or null. */
  void (*fail)(void* context, fsdp2_code code, const char* message, const char* key);
} fsdp2_plan_output;

typedef struct fsdp2_strategy {
  size_t struct_size;
  const char* name;                /* with a prefix of its own, "acme.by_bytes"; fsdp1 and fsdp2 are taken */
  const char* help;                /* a few words for a person, or null */
  const char* const* option_names; /* its own options; others are refused, with the nearest of these */
  size_t option_count;
  void* user; /* first argument of plan */
  /* 0: the plan is in `output`. It is checked before it runs. */
  int32_t (*plan)(void* user, const fsdp2_plan_input* input, const fsdp2_plan_output* output);
} fsdp2_strategy;

/* ---- an adapter: from another host's configuration file to keys of [fsdp] ---------------------------------------- */

typedef struct fsdp2_translation_input {
  size_t struct_size;
  const char* text; /* the file named by `config`, null-terminated beyond `length` */
  size_t length;
  const char* file; /* its path, for messages */
  int64_t version;  /* the `version` of FSDP that stands beside `dialect`, to convert to; 0: none does */
} fsdp2_translation_input;

/* Lines and columns count from 1; 0 is unknown. */
typedef struct fsdp2_translation_output {
  size_t struct_size;
  void* context; /* first argument of the functions below */
  /* A key of [fsdp] ("wrap.policy"), its value as TOML ("\"size\""), the key as the file has it, and where it stands.
   */
  void (*add_key)(void* context, const char* key, const char* value, const char* written, int64_t line, int64_t column);
  /* A key, as the file has it, that means nothing any more: all of them are told in one warning. */
  void (*add_obsolete)(void* context, const char* written, int64_t line);
  /* Any other remark for a person; names its key. */
  void (*add_note)(void* context, const char* text);
  /* Why the file cannot be taken. Return not 0 afterwards. */
  void (*fail)(void* context, fsdp2_code code, const char* message, const char* written, int64_t line, int64_t column);
} fsdp2_translation_output;

typedef struct fsdp2_adapter {
  size_t struct_size;
  const char* dialect; /* "acme"; those of the plugin are taken: dialect_name in plugin.h */
  const char* help;    /* a few words for a person, or null */
  void* user;          /* first argument of translate */
  /* 0: the keys are in `output`. They are checked as if they stood in [fsdp]. */
  int32_t (*translate)(void* user, const fsdp2_translation_input* input, const fsdp2_translation_output* output);
} fsdp2_adapter;

/* ---- the export -------------------------------------------------------------------------------------------------- */

typedef struct fsdp2_extension {
  size_t struct_size;
  uint32_t abi_major; /* FSDP2_ABI_MAJOR and FSDP2_ABI_MINOR of the headers it was built with */
  uint32_t abi_minor;
  const char* name;    /* "acme-strategies", for messages */
  const char* version; /* "1.2.0" */
  const fsdp2_strategy* const* strategies;
  size_t strategy_count;
  const fsdp2_adapter* const* adapters;
  size_t adapter_count;
} fsdp2_extension;

#define FSDP2_EXTENSION_GET_SYMBOL "fsdp2_extension_get" /* fsdp2_extension_get_function */

/* The table for an ABI major, or null for one the library does not know. */
typedef const fsdp2_extension* (*fsdp2_extension_get_function)(uint32_t abi_major);

#ifdef __cplusplus
}
#endif
#endif /* FSDP2_EXTENSION_H */
