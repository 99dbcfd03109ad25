/* Extensions with one defect each: tests/unit/CMakeLists.txt says which. Without one: a library that is as it must be.
 */
#include <fsdp2/extension.h>

#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(fsdp2_extension)
#endif
#ifndef STRATEGY_SIZE
#define STRATEGY_SIZE sizeof(fsdp2_strategy)
#endif
#ifndef MAJOR
#define MAJOR FSDP2_ABI_MAJOR
#endif
#ifndef NAME
#define NAME "zoo"
#endif
#ifndef STRATEGY
#define STRATEGY "zoo.other"
#endif
#ifndef PLAN
#define PLAN &plan
#endif
#ifndef DIALECT
#define DIALECT "zoo_other"
#endif
#ifndef TRANSLATE
#define TRANSLATE &translate
#endif
#ifndef TABLE
#define TABLE &extension
#endif
#ifndef GET
#define GET fsdp2_extension_get
#endif

int32_t plan(void* user, const fsdp2_plan_input* input, const fsdp2_plan_output* output);
int32_t plan(void* user, const fsdp2_plan_input* input, const fsdp2_plan_output* output) {
  return user != NULL || input == NULL || output == NULL;
}

int32_t translate(void* user, const fsdp2_translation_input* input, const fsdp2_translation_output* output);
int32_t translate(void* user, const fsdp2_translation_input* input, const fsdp2_translation_output* output) {
  return user != NULL || input == NULL || output == NULL;
}

static const fsdp2_strategy strategy = {.struct_size = STRATEGY_SIZE, .name = STRATEGY, .plan = PLAN};
static const fsdp2_strategy* const strategies[] = {&strategy};
static const fsdp2_adapter adapter = {.struct_size = sizeof(fsdp2_adapter), .dialect = DIALECT, .translate = TRANSLATE};
static const fsdp2_adapter* const adapters[] = {&adapter};
extern const fsdp2_extension extension;
const fsdp2_extension extension = {.struct_size = TABLE_SIZE,
                                   .abi_major = MAJOR,
                                   .abi_minor = 0,
                                   .name = NAME,
                                   .version = "1.0",
                                   .strategies = strategies,
                                   .strategy_count = 1,
                                   .adapters = adapters,
                                   .adapter_count = 1};

const fsdp2_extension* GET(uint32_t abi_major);
const fsdp2_extension* GET(uint32_t abi_major) {
  return abi_major == FSDP2_ABI_MAJOR ? TABLE : NULL;
}
