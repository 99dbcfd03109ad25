#include "plugin/engine/content_hash.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace fsdp2 {

// FNV-1a over 8-byte words in four independent lanes.
uint64_t content_hash(std::string_view bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  std::array<uint64_t, 4> lanes{0xcbf29ce484222325, 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9};
  size_t i = 0;
  for (; i + 32 <= bytes.size(); i += 32) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), bytes.data() + i, 32);
    for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = std::rotl((lanes[lane] ^ words[lane]) * kPrime, 29);
  }
  for (; i < bytes.size(); ++i) lanes[0] = (lanes[0] ^ static_cast<unsigned char>(bytes[i])) * kPrime;
  uint64_t hash = bytes.size();
  for (const uint64_t lane : lanes) hash = (hash ^ lane ^ (lane >> 29)) * kPrime;
  return hash;
}

uint64_t content_hash(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return content_hash({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
}

}  // namespace fsdp2
