#include "plugin/engine/same_start.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <bit>
#include <cstring>

#include "registry/error.hpp"

namespace fsdp2 {
namespace {

// FNV-1a over 8-byte words in four independent lanes: as fast as memory, and any changed bit changes the result. Not
// meant against an adversary.
uint64_t hash_bytes(const char* data, size_t bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  std::array<uint64_t, 4> lanes{0xcbf29ce484222325, 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9};
  size_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), data + i, 32);
    for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = std::rotl((lanes[lane] ^ words[lane]) * kPrime, 29);
  }
  for (; i < bytes; ++i) lanes[0] = (lanes[0] ^ static_cast<unsigned char>(data[i])) * kPrime;
  uint64_t hash = bytes;
  for (const uint64_t lane : lanes) hash = (hash ^ lane ^ (lane >> 29)) * kPrime;
  return hash;
}

// Every rank's values, rank after rank.
std::vector<int64_t> gather(Communicator& communicator, const std::vector<int64_t>& values, c10::Device device) {
  at::Tensor own = at::tensor(values, at::kLong).to(device);
  at::Tensor all = at::empty({communicator.size() * own.numel()}, own.options());
  communicator.all_gather(all, own)->wait();
  all = all.cpu();
  const auto* data = all.const_data_ptr<int64_t>();
  return {data, data + all.numel()};
}

/// In the place of a model's hash.
constexpr int64_t kNoStart = 0;

}  // namespace

void report_no_start(Communicator& communicator, c10::Device device) noexcept {
  if (communicator.size() == 1) return;
  try {
    c10::InferenceMode normal(false);
    at::NoGradGuard no_grad;
    gather(communicator, {kNoStart}, device);
  } catch (const std::exception&) {  // the fault that is reported counts, not that nobody heard of it
  }
}

void check_same_start(Communicator& communicator, const std::string& description, const std::vector<std::string>& names,
                      const std::vector<at::Tensor>& tensors) {
  if (communicator.size() == 1) return;
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  const c10::Device device = tensors.empty() ? c10::kCPU : tensors.front().device();

  const auto ranks = static_cast<size_t>(communicator.size());
  const auto models =
      gather(communicator, {static_cast<int64_t>(hash_bytes(description.data(), description.size()))}, device);
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (models[rank] != kNoStart) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "rank " + std::to_string(rank) + " could not be sharded, so no rank is; its own error says why",
                {.rank = static_cast<int64_t>(rank)});
  }
  for (size_t rank = 1; rank < ranks; ++rank) {
    if (models[rank] == models[0]) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "rank " + std::to_string(rank) + " has another model or other options than rank 0 (names, shapes, " +
                    "trainable flags or the plan differ); give every rank the same module and configuration",
                {.rank = static_cast<int64_t>(rank)});
  }

  if (tensors.empty()) return;
  std::vector<int64_t> hashes;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor host = tensor.detach().cpu();
    hashes.push_back(static_cast<int64_t>(hash_bytes(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
  }
  const auto weights = gather(communicator, hashes, device);
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t rank = 1; rank < ranks; ++rank) {
      if (weights[rank * names.size() + i] == weights[i]) continue;
      throw Error(ErrorCode::kFailedPrecondition,
                  "rank " + std::to_string(rank) + " holds other values than rank 0 in parameter `" + names[i] +
                      "`; load the same weights on every rank before sharding",
                  {.parameter = names[i], .rank = static_cast<int64_t>(rank)});
    }
  }
}

}  // namespace fsdp2
