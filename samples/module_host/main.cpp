// A host without TorchScript: its model is a torch::nn::Module, its forward is C++, its ranks are MPI's.
//   mpirun -n 2 module_host libfsdp2_plugin.so train.toml
#include <fsdp2/mpi.h>
#include <torch/torch.h>

#include <cstdio>
#include <fsdp2/plugin.hpp>

struct Block : torch::nn::Module {
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})))};
  torch::nn::Linear up{register_module("up", torch::nn::Linear(32, 64))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(64, 32))};
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::tanh(up(norm(x)))); }
};

struct Model : torch::nn::Module {
  torch::nn::ModuleList blocks{register_module("blocks", torch::nn::ModuleList())};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(32, 4))};
  Model() {
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Block>());
  }
  torch::Tensor forward(torch::Tensor x, fsdp2::Engine& engine) {
    auto root = engine.enter("", x);  // gathers what belongs to no block; x is now the tensor to compute with
    for (size_t i = 0; i < blocks->size(); ++i) {
      auto call = engine.enter("blocks." + std::to_string(i), x);
      x = blocks->at<Block>(i).forward(x);
      call.exit(x);
    }
    auto y = head(x);
    root.exit(y);
    return y;
  }
};

int main(int argc, char** argv) try {
  if (argc != 3) return std::fputs("usage: mpirun -n N module_host PLUGIN CONFIG\n", stderr), 2;
  int threads = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &threads);
  {
    const fsdp2::MpiCommunicator ranks(MPI_COMM_WORLD);
    auto plugin = fsdp2::Plugin::load(argv[1]);
    torch::manual_seed(0);  // every rank begins with the same weights
    auto model = std::make_shared<Model>();
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));  // needs no change
    std::vector<std::string> units{"blocks.*"};
    auto engine =
        plugin.shard_tensors(model->named_parameters().pairs(), plugin.config_from_file(argv[2]), units, ranks.table());

    for (int step = 0; step < 20; ++step) {
      torch::manual_seed(100 * step + engine.rank());  // every rank has its own data
      auto input = torch::randn({16, 32});
      auto target = input.slice(1, 0, 4);
      auto loss = torch::mse_loss(model->forward(input, engine), target);
      optimizer.zero_grad();
      loss.backward();
      engine.clip_gradient_norm(1.0);
      optimizer.step();
      double mean = loss.item<double>() / static_cast<double>(engine.world_size());
      MPI_Allreduce(MPI_IN_PLACE, &mean, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      if (engine.rank() == 0) std::printf("step %d loss %.6f\n", step, mean);
    }

    auto rank = engine.rank();
    engine.detach();  // all ranks: plain tensors again
    if (rank == 0) torch::save(model, "trained.pt");
  }
  MPI_Finalize();
} catch (const c10::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what_without_backtrace()), 1;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
