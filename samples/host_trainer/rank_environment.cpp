#include "samples/host_trainer/rank_environment.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <stdexcept>

namespace trainer {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<int> number(const char* name, int least, int most) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most)
    throw std::runtime_error(std::string(name) + " is \"" + *text + "\" but must be an integer from " +
                             std::to_string(least) + " to " + std::to_string(most) + ".");
  return value;
}

}  // namespace

RankEnvironment rank_environment() {
  RankEnvironment e;
  const auto rank = number("RANK", 0, 1 << 20);
  const auto world = number("WORLD_SIZE", 1, 1 << 20);
  if (!rank && !world) return e;
  if (!rank || !world) throw std::runtime_error("Of RANK and WORLD_SIZE only one is set; a launcher sets both.");
  if (*rank >= *world)
    throw std::runtime_error("RANK is " + std::to_string(*rank) + " but WORLD_SIZE is " + std::to_string(*world) + ".");
  e.rank = *rank;
  e.world = *world;
  e.local_rank = number("LOCAL_RANK", 0, 1 << 20).value_or(0);
  e.local_world = number("LOCAL_WORLD_SIZE", 1, 1 << 20).value_or(1);
  if (e.world == 1) return e;
  const auto address = variable("MASTER_ADDR");
  const auto port = number("MASTER_PORT", 1, 65535);
  if (!address || !port) throw std::runtime_error("With WORLD_SIZE > 1, MASTER_ADDR and MASTER_PORT must be set.");
  e.master_address = *address;
  e.master_port = static_cast<uint16_t>(*port);
  e.store_is_kept = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  e.restart = variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return e;
}

}  // namespace trainer
