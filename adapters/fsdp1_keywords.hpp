// What the keywords of PyTorch's FullyShardedDataParallel mean, for every host that hands them through. Its strategy,
// mesh, wrap policy and offload are the caller's: hosts have forms of their own for these.
#pragma once
#include <cstdint>

#include "adapters/translation_draft.hpp"
#include "adapters/yaml_block.hpp"

namespace fsdp2::fsdp1 {

/// Prefetching, loading, ignored modules. `version` is that of the result; towards 2 the keys that it has not are
/// listed as obsolete.
void translate_keywords(const YamlBlock& keywords, int64_t version, TranslationDraft& draft);

/// The keywords of a MixedPrecision, which must be known ones.
void translate_precision(const YamlBlock& keywords, int64_t version, TranslationDraft& draft);

}  // namespace fsdp2::fsdp1
