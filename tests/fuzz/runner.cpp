// The library's side of the fuzz: trains cases as one rank of those that the environment names, and writes what came
// out.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <exception>
#include <fsdp2/plugin.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using Tensors = c10::Dict<std::string, at::Tensor>;

class Case {
 public:
  explicit Case(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    values_ = torch::jit::pickle_load(bytes).toGenericDict();
  }
  [[nodiscard]] c10::IValue operator[](const char* name) const { return values_.at(name); }

 private:
  c10::Dict<c10::IValue, c10::IValue> values_{c10::AnyType::get(), c10::AnyType::get()};
};

/// As in pytorch_side.py.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, std::vector<at::Tensor> parameters) {
  if (name == "sgd")
    return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.05).momentum(0.9));
  if (name == "adamw")
    return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                 torch::optim::AdamWOptions(0.01).eps(1e-3).weight_decay(0.01));
  throw std::runtime_error("unknown optimizer " + name);
}

/// Tied parameters under each of their names, as Python lists them.
Tensors whole_gradients(const fsdp2::Engine& engine, const torch::jit::Module& module) {
  Tensors gradients;
  for (const auto& [name, shard] : engine.named_parameters()) {
    if (!shard.grad().defined()) continue;
    const at::Tensor whole = engine.gather_tensor(name, shard.grad());
    for (const auto& slot : module.named_parameters())
      if (slot.value.is_same(shard)) gradients.insert(slot.name, whole);
  }
  return gradients;
}

/// What is set before each pass; as in pytorch_side.py.
void before_pass(fsdp2::Engine& engine, const std::string& accumulation, bool is_last) {
  if (accumulation == "no sync") engine.set_gradient_sync(is_last);
  if (accumulation == "no all-reduce") engine.set_all_reduce(is_last);
  if (accumulation == "sums end later") engine.set_last_backward(is_last);
}

void run(const fsdp2::Plugin& plugin, const std::string& folder, int64_t rank) {
  const Case data(folder + "/case.pt");
  auto module = torch::jit::load(folder + "/model.pt");
  auto engine = plugin.shard(module, plugin.config_from_file(folder + "/options.toml"));
  const auto optimizer = make_optimizer(data["optimizer"].toStringRef(), engine.parameters());
  const int64_t steps = data["steps"].toInt();
  const int64_t passes = data["micro_batches"].toInt();
  const double clip = data["clip"].toDouble();  // the norm's p, or 0
  std::vector<double> losses;
  std::vector<double> norms;
  Tensors first_gradients;
  Tensors gradients;
  const auto forward = [&](int64_t step, int64_t micro) {
    const auto own = [&](const char* name) { return data[name].toTensor()[step][micro][rank]; };
    const at::Tensor output = module.forward({own("x"), own("ids"), data["flag"].toTensor()[step][micro]}).toTensor();
    const at::Tensor loss = (output - own("target")).square().mean();
    losses.push_back(loss.item<double>());
    return loss;
  };
  for (int64_t step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    for (int64_t micro = 0; micro < passes; ++micro) {
      before_pass(engine, data["accumulation"].toStringRef(), micro == passes - 1);
      forward(step, micro).backward();
    }
    if (step == 0) first_gradients = whole_gradients(engine, module);
    if (clip > 0) norms.push_back(engine.clip_gradient_norm(data["max_norm"].toDouble(), clip));
    if (data["evaluates"].toBool()) {
      const at::NoGradGuard no_grad;
      forward(step, 0);
    }
    if (step == steps - 1) gradients = whole_gradients(engine, module);
    optimizer->step();
  }
  engine.detach();
  Tensors parameters;
  for (const auto& parameter : module.named_parameters()) parameters.insert(parameter.name, parameter.value.detach());
  c10::impl::GenericDict all(c10::StringType::get(), c10::AnyType::get());
  all.insert("losses", at::tensor(losses, at::kFloat));
  all.insert("norms", at::tensor(norms, at::kFloat));
  all.insert("first gradients", first_gradients);
  all.insert("gradients", gradients);
  all.insert("parameters", parameters);
  const std::vector<char> bytes = torch::jit::pickle_save(all);
  std::ofstream(folder + "/library_" + std::to_string(rank) + ".pt", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

/// runner LIBRARY FOLDER...
int main(int argc, char** argv) {
  at::set_num_threads(1);
  const char* rank = std::getenv("RANK");
  if (argc < 3 || rank == nullptr) return 2;
  const auto plugin = fsdp2::Plugin::load(argv[1]);
  for (int i = 2; i < argc; ++i) {
    try {
      run(plugin, argv[i], std::atoll(rank));
    } catch (const c10::Error& error) {
      std::ofstream(std::string(argv[i]) + "/library_" + rank + ".error") << error.what_without_backtrace();
    } catch (const std::exception& error) {
      std::ofstream(std::string(argv[i]) + "/library_" + rank + ".error") << error.what();
    }
  }
}
