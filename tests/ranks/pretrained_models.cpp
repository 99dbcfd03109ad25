// Models that others made: traced from transformers, or taken from their packages as they are shipped.
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>

#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {

/// An encoder and a decoder, one table for both and for the output. Layers hand the bias of positions on to each other.
RANK_CASE(PretrainedModels, t5) {
  Recipe recipe;
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    const at::Tensor written = token_ids(step + 7, rank, 2, 17, kVocabulary);
    const at::Tensor logits = module.forward({input_ids(step, rank), written.slice(1, 0, 16)}).toTensor();
    return at::cross_entropy_loss(logits.reshape({-1, kVocabulary}), written.slice(1, 1, 17).reshape({-1}));
  };
  expect_trains_like_unsharded(context, "hf_t5", units_of({"T5Block"}), recipe);
}

RANK_CASE(PretrainedModels, vit) {
  Recipe recipe;
  recipe.loss = [](torch::jit::Module& module, int64_t step, int64_t rank) {
    const at::Tensor pixels = fill({2, 3, 16, 16}, 5 + step) + 0.125 * static_cast<double>(rank);
    const at::Tensor classes = at::tensor({step % 5, (step + rank + 2) % 5}, at::kLong);
    const auto dtype = (*module.parameters().begin()).scalar_type();  // float64 where noise is looked for
    return at::cross_entropy_loss(module.forward({pixels.to(dtype)}).toTensor(), classes);
  };
  Tolerance tolerance;
  tolerance.noise = elements_of_noise(context, "hf_vit", recipe);  // key biases
  expect_trains_like_unsharded(context, "hf_vit", units_of({"ViTLayer"}), recipe, tolerance);
}

/// Whether three chunks of sound are speech; the detector remembers from chunk to chunk.
at::Tensor speech_loss(torch::jit::Module& module, int64_t step, int64_t rank) {
  module.run_method("reset_states");
  at::Tensor loss = at::zeros({});
  for (int64_t chunk = 0; chunk < 3; ++chunk) {
    const at::Tensor sound = fill({4, 512}, step + 3 * rank + chunk);
    const at::Tensor speech = fill({4, 1}, step + chunk).gt(0).to(at::kFloat);
    loss = loss + at::binary_cross_entropy(module.forward({sound, int64_t{16000}}).toTensor(), speech);
  }
  return loss;
}

/// Silero's voice activity detector: two models in one, of which the rate of the sound chooses, a frozen encoder and a
/// decoder that trains in each, state in attributes.
RANK_CASE(PretrainedModels, silero_vad) {
  const auto detector = [&] {
    torch::jit::Module module = load(context, "silero_vad");
    module.eval();  // no dropout
    return module;
  };
  Recipe recipe;
  recipe.loss = speech_loss;
  const torch::jit::Module plain = detector();
  const Reference reference = train_unsharded(plain, recipe, context.world());

  auto module = detector();
  const Sharding sharding = units_of({"SileroVadBlock", "VADDecoderRNNJIT"});
  expect_trains_like(context, module, sharding, recipe, reference);
  int64_t trained = 0;
  const auto trained_parameters = named_parameters(module);
  for (const auto& [name, before] : named_parameters(detector())) {
    const bool trains = name.starts_with("_model.decoder.");
    EXPECT_EQ(trained_parameters.at(name).equal(before), !trains) << name;
    trained += trains ? 1 : 0;
  }
  EXPECT_EQ(trained, 6);

  // Its other methods, and the model that did not train.
  auto communicator = context.new_communicator();
  const auto sharded = shard(context, module, sharding, communicator);
  communicator->forget();
  speech_loss(module, 0, context.rank()).backward();
  EXPECT_EQ(communicator->count(Collective::kReduceScatter), 1);
  const at::NoGradGuard guard;
  for (const int64_t rate : {16000, 8000}) {
    const at::Tensor sound = fill({2, 2048}, 3);
    const at::Tensor own = module.run_method("audio_forward", sound, rate).toTensor();
    const at::Tensor wanted = plain.get_method("audio_forward")({sound, rate}).toTensor();
    EXPECT_LE((own - wanted).abs().max().item<double>(), 1e-5) << rate;
  }
}

}  // namespace
}  // namespace fsdp2::testing
