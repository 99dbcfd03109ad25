// The whole of a host: load the plugin, load a scripted model, shard it by a TOML file, train it, save it.
//   torchrun --no-python --nproc-per-node 2 minimal_host libfsdp2_plugin.so model.pt train.toml
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdio>
#include <fsdp2/plugin.hpp>

int main(int argc, char** argv) try {
  if (argc != 4) return std::fputs("usage: minimal_host PLUGIN MODEL CONFIG\n", stderr), 2;
  auto plugin = fsdp2::Plugin::load(argv[1]);
  auto model = torch::jit::load(argv[2]);
  auto engine = plugin.shard(model, plugin.config_from_file(argv[3]));  // among RANK ... of WORLD_SIZE
  torch::optim::AdamW optimizer(engine.parameters(), torch::optim::AdamWOptions(1e-2));

  torch::manual_seed(engine.rank());  // every rank has its own data
  for (int step = 0; step < 20; ++step) {
    auto input = torch::randn({32, 16});
    auto target = input.slice(1, 0, 4);
    auto loss = torch::mse_loss(model.forward({input}).toTensor(), target);
    optimizer.zero_grad();
    loss.backward();
    engine.clip_gradients();  // where the configuration asks for it
    optimizer.step();
    if (engine.rank() == 0) std::printf("step %d loss %.6f\n", step, loss.item<double>());
  }

  auto rank = engine.rank();
  engine.detach();  // all ranks: the model is whole and plain again
  if (rank == 0) model.save("trained.pt");
} catch (const c10::Error& error) {  // LibTorch's own, without its C++ stack
  return std::fprintf(stderr, "%s\n", error.what_without_backtrace()), 1;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
