/* A host in plain C that shards a module over a transport of its own, with a strategy from outside:
 * sharding_host <plugin> <strategy library>. Built with the headers of today and with those of ABI 1.0. */
#include <dlfcn.h>
#include <fsdp2/plugin.h>
#include <stdio.h>
#include <string.h>

/* scripted_module.cpp: a torch::jit::Module* of 508 parameters in four tensors. */
void* new_scripted_module(void);
void delete_scripted_module(void* module);

static int failures = 0;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "sharding_host: %s\n", what);
  ++failures;
}

static void take(const fsdp2_api* api, fsdp2_status* status, const char* call) {
  if (status == NULL) return;
  fprintf(stderr, "sharding_host: %s: %s\n", call, api->status_message(status));
  api->status_release(status);
  ++failures;
}

/* One rank: what it sends is what it receives. */
static const char* loop(void* context, void* output, const void* input, int64_t bytes, void* stream, void** request) {
  (void)stream;
  ++*(int*)context;
  if (output != input) memcpy(output, input, (size_t)bytes);
  *request = NULL;
  return NULL;
}
static const char* test(void* context, void* request, int32_t* done) {
  (void)context;
  (void)request;
  *done = 1;
  return NULL;
}

static void visit(void* user, const char* name, size_t name_length, const void* tensor) {
  check(name_length > 6 && (memcmp(name, "inner.", 6) == 0 || memcmp(name, "outer.", 6) == 0) && tensor != NULL,
        "a parameter");
  ++*(int*)user;
}

static void visit_geometry(void* user, const fsdp2_shard_geometry* geometry) {
  int64_t elements = 1;
  for (size_t i = 0; i < geometry->dims; ++i) elements *= geometry->shape[i];
  check(geometry->struct_size >= sizeof(*geometry) && geometry->begin == 0 && geometry->end == elements, "a shard");
  check(geometry->whole_rows == 1 && geometry->trainable == 1, "rows of a shard");
  *(int64_t*)user += elements;
}

/* Fields of later versions lie there. */
static void refuse_reserved(const fsdp2_api* api, const fsdp2_shard_args* args, int32_t* field, const char* text) {
  fsdp2_engine* engine = NULL;
  *field = 1;
  fsdp2_status* status = api->shard(args, &engine);
  check(engine == NULL && api->status_code(status) == FSDP2_INVALID_ARGUMENT, text);
  check(strcmp(api->status_message(status), text) == 0, api->status_message(status));
  api->status_release(status);
  *field = 0;
}

static fsdp2_config* load(const fsdp2_api* api, const char* strategy_library) {
  char text[4096];
  snprintf(text, sizeof(text),
           "[fsdp]\nplugins = [\"%s\"]\nstrategy = \"sample.keep_within\"\nstrategy_options.keep_mib = 1\n"
           "wrap.policy = \"every\"\ndebug.force_collectives = true\n",
           strategy_library);
  fsdp2_config_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.text = "[fsdp]\nstratgy = 1\n";
  fsdp2_config* config = NULL;
  fsdp2_status* status = api->config_load(&args, &config);
  check(api->status_code(status) == FSDP2_CONFIG, "a wrong key must be refused");
  check(strcmp(api->status_detail(status, "nearest"), "strategy") == 0, "the nearest key");
  api->status_release(status);
  args.text = text;
  take(api, api->config_load(&args, &config), "config_load");
  if (config == NULL) return NULL;
  check(strstr(api->config_toml(config), "strategy = \"sample.keep_within\"\n") != NULL, "TOML");
  check(api->config_note_count(config) == 1 && strstr(api->config_note(config, 0), strategy_library) != NULL, "a note");
  return config;
}

static void plan(const fsdp2_api* api, const fsdp2_config* config, const void* module) {
  fsdp2_plan_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.config = config;
  args.module = module;
  args.world_size = 2;
  char* text = NULL;
  take(api, api->plan_text(&args, &text), "plan_text");
  check(text != NULL && strncmp(text, "sample.keep_within, ", 20) == 0, "the plan's strategy");
  check(text != NULL && strstr(text, "note: 2 of 2 units stay whole") != NULL, "the strategy's note");
  api->text_release(text);
}

static void shard(const fsdp2_api* api, const fsdp2_config* config, void* module) {
  int calls = 0;
  fsdp2_communicator transport;
  memset(&transport, 0, sizeof(transport));
  transport.struct_size = sizeof(transport);
  transport.context = &calls;
  transport.world_size = 1;
  transport.name = "loop";
  transport.all_gather = &loop;
  transport.all_to_all = &loop;
  transport.test = &test;
  fsdp2_shard_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.config = config;
  args.module = module;
  args.communicator_kind = FSDP2_COMMUNICATOR_CALLBACKS;
  args.communicator = &transport;
  refuse_reserved(api, &args, &args.reserved, "fsdp2_shard_args.reserved is not 0");
  refuse_reserved(api, &args, &transport.reserved, "fsdp2_communicator.reserved is not 0");
  fsdp2_engine* engine = NULL;
  take(api, api->shard(&args, &engine), "shard");
  if (engine == NULL) return;

  int parameters = 0;
  take(api, api->engine_visit_parameters(engine, &visit, &parameters), "engine_visit_parameters");
  check(parameters == 4, "four parameters");
  int64_t elements = 0;
  take(api, api->engine_visit_geometry(engine, &visit_geometry, &elements), "engine_visit_geometry");
  check(elements == 508, "all elements");
  take(api, api->engine_gather(engine), "engine_gather");
  take(api, api->engine_release_gathered(engine, 0), "engine_release_gathered");
  fsdp2_statistics statistics;
  memset(&statistics, 0, sizeof(statistics));
  statistics.struct_size = sizeof(statistics);
  take(api, api->engine_statistics(engine, &statistics), "engine_statistics");
  check(statistics.parameter_bytes == 508 * 4 && statistics.world_size == 1 && statistics.units == 3, "statistics");
  check(statistics.struct_size == sizeof(statistics), "the host's size stays");
  double norm = -1;
  take(api, api->engine_gradient_norm(engine, 2, &norm), "engine_gradient_norm");
  check(norm == 0, "no gradients yet");
  check(strncmp(api->engine_plan_text(engine), "sample.keep_within, ", 20) == 0, "the engine's plan");
  check(calls > 0, "the transport was used");
  take(api, api->engine_detach(engine), "engine_detach");
  api->engine_release(engine);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "sharding_host: %s\n", dlerror()), 1;
  fsdp2_get_api_function get_api;
  *(void**)&get_api = dlsym(library, FSDP2_GET_API_SYMBOL);
  const fsdp2_api* api = get_api == NULL ? NULL : get_api(FSDP2_ABI_MAJOR);
  if (api == NULL || api->struct_size < sizeof(fsdp2_api)) return fprintf(stderr, "sharding_host: no table\n"), 1;
  fsdp2_host_info host;
  memset(&host, 0, sizeof(host));
  host.struct_size = sizeof(host);
  host.abi_major = FSDP2_ABI_MAJOR;
  host.abi_minor = FSDP2_ABI_MINOR;
  take(api, api->initialize(&host), "initialize");
  fsdp2_config* config = load(api, argv[2]);
  if (config != NULL) {
    void* module = new_scripted_module();
    plan(api, config, module);
    shard(api, config, module);
    delete_scripted_module(module);
    api->config_release(config);
  }
  take(api, api->shutdown(&host), "shutdown");
  return failures == 0 ? 0 : 1;
}
