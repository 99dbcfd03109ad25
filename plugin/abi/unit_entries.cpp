// Entries that gather and free units by hand.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin/abi/arguments.hpp"
#include "plugin/abi/engine_handle.hpp"
#include "plugin/abi/entries.hpp"
#include "plugin/abi/status.hpp"

namespace fsdp2::entries {
namespace {

void wait_for(const HeldUnshard& unshard) {
  for (const auto& weak : unshard.units) {
    if (const auto unit = weak.lock()) unit->finish_unshard();
  }
}

}  // namespace

fsdp2_status* engine_unshard(fsdp2_engine* engine, const char* path, int32_t recurse, fsdp2_unshard** out) noexcept {
  return guard([&] {
    if (out != nullptr) *out = nullptr;
    const char* module = &require_argument(path, "path");
    auto unshard = std::make_shared<HeldUnshard>();
    unshard->units = engine_of(engine)->start_unshard(module, recurse != 0);
    if (out != nullptr) {
      *out = UnshardHandles::live().add(std::move(unshard));
    } else {
      wait_for(*unshard);
    }
  });
}

fsdp2_status* unshard_wait(fsdp2_unshard* unshard) noexcept {
  return guard([&] { wait_for(*UnshardHandles::live().require(unshard, "unshard")); });
}

void unshard_release(fsdp2_unshard* unshard) noexcept {
  UnshardHandles::live().remove(unshard);
}

fsdp2_status* engine_reshard(fsdp2_engine* engine, const char* path, int32_t recurse) noexcept {
  return guard([&] {
    const char* module = &require_argument(path, "path");
    engine_of(engine)->reshard(module, recurse != 0);
  });
}

fsdp2_status* engine_set_reshard_after_forward(fsdp2_engine* engine, const char* path, int32_t recurse,
                                               int32_t reshard) noexcept {
  return guard([&] {
    const char* module = &require_argument(path, "path");
    engine_of(engine)->set_reshard_after_forward(module, recurse != 0, reshard != 0);
  });
}

fsdp2_status* engine_set_reshard_after_backward(fsdp2_engine* engine, const char* path, int32_t recurse,
                                                int32_t reshard) noexcept {
  return guard([&] {
    const char* module = &require_argument(path, "path");
    engine_of(engine)->set_reshard_after_backward(module, recurse != 0, reshard != 0);
  });
}

fsdp2_status* engine_set_prefetch(fsdp2_engine* engine, const char* path, const char* const* ahead, size_t count,
                                  int32_t backward) noexcept {
  return guard([&] {
    const char* module = &require_argument(path, "path");
    if (count > 0) require_argument(ahead, "ahead");
    std::vector<std::string> paths;
    for (size_t i = 0; i < count; ++i) {
      const std::string place = "ahead[" + std::to_string(i) + "]";
      paths.emplace_back(&require_argument(ahead[i], place.c_str()));
    }
    engine_of(engine)->set_prefetch(module, paths, backward != 0);
  });
}

}  // namespace fsdp2::entries
