// plugin.h and extension.h must be C++20 without a warning.
#include <fsdp2/extension.h>

static_assert(FSDP2_OK == 0 && FSDP2_INTERNAL == 10, "codes keep their values");
