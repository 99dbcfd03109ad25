/* A host in plain C, without LibTorch: opens the library, lists its strategies and reads a configuration.
 * c_host <plugin> return|close|reopen: what it does before it returns from main. */
#include <dlfcn.h>
#include <fsdp2/plugin.h>
#include <stdio.h>
#include <string.h>

static int fail(const char* what) {
  fprintf(stderr, "c_host: %s\n", what);
  return 1;
}

static int failed(const fsdp2_api* api, fsdp2_status* status) {
  if (status == NULL) return 0;
  fprintf(stderr, "c_host: %s\n", api->status_message(status));
  api->status_release(status);
  return 1;
}

static int use(void* library) {
  const fsdp2_manifest* manifest = (const fsdp2_manifest*)dlsym(library, FSDP2_MANIFEST_SYMBOL);
  if (manifest == NULL || manifest->magic != FSDP2_MANIFEST_MAGIC) return fail("no manifest");
  fsdp2_get_api_function get_api;
  *(void**)&get_api = dlsym(library, FSDP2_GET_API_SYMBOL);
  if (get_api == NULL) return fail("no fsdp2_plugin_get_api");
  if (get_api(FSDP2_ABI_MAJOR + 1) != NULL) return fail("a table for an unknown version");
  const fsdp2_api* api = get_api(FSDP2_ABI_MAJOR);
  if (api == NULL) return fail("no table");

  fsdp2_host_info host;
  memset(&host, 0, sizeof(host));
  host.struct_size = sizeof(host);
  host.abi_major = FSDP2_ABI_MAJOR;
  host.abi_minor = FSDP2_ABI_MINOR;
  if (failed(api, api->initialize(&host))) return 1;
  for (size_t i = 0; i < api->strategy_count(); ++i) printf("%s\n", api->strategy_name(i));
  if (api->strategy_count() == 0 || api->strategy_name(api->strategy_count()) != NULL) return fail("strategies");

  fsdp2_config_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.text = "[fsdp]\nstrategy = \"full_shard\"\n";
  fsdp2_config* config = NULL;
  if (failed(api, api->config_load(&args, &config))) return 1;
  printf("%s", api->config_toml(config));
  api->config_release(config);

  const char* const overrides[] = {"dialect=accelerate", "wrap.policy=every"};
  const char* const host_keys[] = {"fsdp_version=2", "reshard_after_forward=False"};
  args.text = NULL;
  args.overrides = overrides;
  args.override_count = 2;
  args.host_keys = host_keys;
  args.host_key_count = 2;
  if (failed(api, api->config_load(&args, &config))) return 1;
  if (strstr(api->config_toml(config), "strategy = \"shard_grad_op\"\n") == NULL) return fail("host keys");
  api->config_release(config);
  return failed(api, api->shutdown(&host));
}

int main(int argc, char** argv) {
  if (argc != 3) return fail("expected a plugin and return, close or reopen");
  const int opens = strcmp(argv[2], "reopen") == 0 ? 3 : 1;
  for (int i = 0; i < opens; ++i) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fail(dlerror());
    if (use(library) != 0) return 1;
    if (strcmp(argv[2], "return") != 0) dlclose(library);
  }
  return 0;
}
