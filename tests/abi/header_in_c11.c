/* plugin.h and extension.h must be C11 without a warning. */
#include <assert.h>
#include <fsdp2/extension.h>

static_assert(FSDP2_OK == 0 && FSDP2_INTERNAL == 10, "codes keep their values");
