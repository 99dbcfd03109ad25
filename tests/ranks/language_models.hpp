// The language models of the tests: which files, which layer class, which data.
#pragma once
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/ranks/harness/data.hpp"
#include "tests/ranks/harness/training.hpp"

namespace fsdp2::testing {

struct LanguageModel {
  std::string file;
  std::string layer_class;
  int64_t blocks = 3;
};

inline const std::vector<LanguageModel>& language_models() {
  static const std::vector<LanguageModel> models{
      {"lm", "Block"},
      {"lm_tied", "Block"},
      {"lm_traced", "Block"},
      {"lm_traced_tied", "Block"},
      {"hf_llama", "LlamaDecoderLayer"},
      {"hf_llama_tied", "LlamaDecoderLayer"},
      {"hf_gpt2", "GPT2Block"},
      {"hf_gpt2_tied", "GPT2Block"},
      {"hf_bert_tied", "BertLayer"},
  };
  return models;
}

inline constexpr int64_t kVocabulary = 257;

/// Ids of the inputs, two sequences of 16.
inline at::Tensor input_ids(int64_t step, int64_t rank) {
  return token_ids(step, rank, 2, 17, kVocabulary).slice(1, 0, 16);
}

/// Cross entropy of the next token.
inline at::Tensor next_token_loss(torch::jit::Module& module, int64_t step, int64_t rank) {
  const at::Tensor ids = token_ids(step, rank, 2, 17, kVocabulary);
  const at::Tensor logits = module.forward({ids.slice(1, 0, 16)}).toTensor();
  return at::cross_entropy_loss(logits.reshape({-1, kVocabulary}), ids.slice(1, 1, 17).reshape({-1}));
}

inline Sharding by_layer(const LanguageModel& model, const std::string& strategy = "full_shard") {
  Sharding sharding;
  sharding.strategy = strategy;
  sharding.classes = {model.layer_class};
  return sharding;
}

/// A sharded model, and what its units communicate from then on.
struct RecordedModel {
  torch::jit::Module module;
  std::shared_ptr<RecordingCommunicator> communicator;
  std::unique_ptr<ShardedModule> sharded;

  RecordedModel(RankContext& context, const LanguageModel& model, const Sharding& sharding)
      : module(load(context, model.file)),
        communicator(context.new_communicator()),
        sharded(shard(context, module, sharding, communicator)) {
    communicator->forget();
  }
};

}  // namespace fsdp2::testing
