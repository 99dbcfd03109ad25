#include "samples/host_trainer/training.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <unordered_set>

#include "samples/host_trainer/evaluation.hpp"
#include "samples/host_trainer/loss.hpp"
#include "samples/host_trainer/memory.hpp"

namespace trainer {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

/// Each tensor once, though two names may share it.
std::vector<at::Tensor> plain_parameters(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& parameter : module.parameters())
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
  return parameters;
}

/// Those of `all` that need gradients and are not among `sharded`.
std::vector<at::Tensor> others_of(const std::vector<at::Tensor>& all, const std::vector<at::Tensor>& sharded) {
  std::unordered_set<const void*> known;
  for (const at::Tensor& tensor : sharded) known.insert(tensor.unsafeGetTensorImpl());
  std::vector<at::Tensor> others;
  for (const at::Tensor& tensor : all)
    if (tensor.requires_grad() && known.count(tensor.unsafeGetTensorImpl()) == 0) others.push_back(tensor);
  return others;
}

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0}, [](int64_t sum, const at::Tensor& tensor) {
    return sum + static_cast<int64_t>(tensor.nbytes());
  });
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Config& config, std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  if (parameters.empty())
    throw std::runtime_error(config.place("model.script") + "the module has no parameter that can be trained.");
  if (config.optimizer == Optimizer::kSgd)
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(config.lr).momentum(config.momentum).weight_decay(config.weight_decay));
  return std::make_unique<torch::optim::AdamW>(parameters,
                                               torch::optim::AdamWOptions(config.lr).weight_decay(config.weight_decay));
}

/// LibTorch's own writer ends the program when the disk is full, so errors are kept from it until it is done.
void write_module(const torch::jit::Module& module, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  int error = file ? 0 : errno;
  torch::jit::ExportModule(module, [&](const void* data, size_t size) {
    if (error == 0 && !file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size))) error = errno;
    return size;
  });
  if (error == 0 && !file.flush()) error = errno;
  if (error != 0) throw std::runtime_error("--save " + path + ": " + std::strerror(error) + '.');
}

/// The whole file or none: a reader never sees half of it. What is no file (a device, a pipe) is written to directly.
void save(const torch::jit::Module& module, const std::string& given) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;
  fs::path path = given;
  for (int links = 0; fs::is_symlink(path) && links < kMostLinks; ++links) {
    path = path.parent_path() / fs::read_symlink(path);
  }
  if (fs::exists(path) && !fs::is_regular_file(path)) return write_module(module, path.string());
  const std::string unfinished = path.string() + '.' + std::to_string(::getpid()) + ".unfinished";
  try {
    write_module(module, unfinished);
    fs::rename(unfinished, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
}

/// Before any data meets the module: the message can name the key.
void check_number_of_inputs(const torch::jit::Module& module, const Config& config) {
  const auto& arguments = module.get_method("forward").function().getSchema().arguments();
  const size_t given = config.synthetic ? 1 : config.inputs.size();
  const size_t most = arguments.size() - 1;  // without self
  const auto with_default = std::count_if(arguments.begin(), arguments.end(),
                                          [](const auto& argument) { return argument.default_value().has_value(); });
  const size_t least = most - static_cast<size_t>(with_default);
  if (given >= least && given <= most) return;
  const std::string wanted =
      least == most ? std::to_string(most) : std::to_string(least) + " to " + std::to_string(most);
  throw std::runtime_error(config.place(config.synthetic ? "data.synthetic" : "data.inputs") + "forward() of " +
                           config.script + " takes " + wanted + (most == 1 ? " input, not " : " inputs, not ") +
                           std::to_string(given) + '.');
}

/// Ranks that were started with different settings would train something that nobody asked for.
void check_same_settings(const Config& config, RankGroup& group) {
  const std::vector<std::pair<const char*, double>> settings = {
      {"loss", static_cast<double>(config.loss)},
      {"optimizer", static_cast<double>(config.optimizer)},
      {"lr", config.lr},
      {"weight_decay", config.weight_decay},
      {"momentum", config.momentum},
      {"steps", static_cast<double>(config.steps)},
      {"batch_size", static_cast<double>(config.batch_size)},
      {"accumulate", static_cast<double>(config.accumulate)},
      {"seed", static_cast<double>(config.seed)},
  };
  std::vector<int64_t> own;
  own.reserve(settings.size());
  for (const auto& [key, value] : settings) own.push_back(std::bit_cast<int64_t>(value));
  const auto rows = group.gather(own, "the settings of each rank");
  for (size_t rank = 1; rank < rows.size(); ++rank) {
    for (size_t i = 0; i < settings.size(); ++i) {
      if (rows[rank][i] == rows[0][i]) continue;
      const std::string key = std::string("train.") + settings[i].first;
      throw std::runtime_error(config.place(key) + '"' + key + "\" is not the same on rank 0 and rank " +
                               std::to_string(rank) + "; give every rank the same configuration.");
    }
  }
}

}  // namespace

torch::jit::Module load_module(const Config& config, at::Device device) {
  try {
    return torch::jit::load(config.script, device);
  } catch (const c10::Error& e) {
    throw std::runtime_error(config.place("model.script") + config.script +
                             " is not a TorchScript module: " + e.what_without_backtrace());
  }
}

Training::Training(const Config& config, const CommandLine& options, const RankEnvironment& environment)
    : config_(config),
      options_(options),
      group_(RankGroup::meet(environment, options.backend, config.meeting_limit)),
      world_(options.unsharded ? std::max(1, options.nproc) : environment.world),
      metrics_(environment.rank == 0 ? options.metrics : ""),
      data_(config.synthetic ? Dataset::synthetic(*config.synthetic, config.seed)
                             : Dataset::from_file(config, config.data_file, "data.file")),
      order_(data_.size(), config.seed) {
  if (config.batch_size > data_.size())
    throw std::runtime_error(config.place("train.batch_size") + "\"train.batch_size\" is " +
                             std::to_string(config.batch_size) + " but there are only " + std::to_string(data_.size()) +
                             " samples; a sample comes once in a batch.");
  if (!config.eval_file.empty()) held_out_ = Dataset::from_file(config, config.eval_file, "data.eval_file");
}

void Training::run() {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  at::set_num_threads(
      static_cast<int>(config_.threads ? config_.threads : std::max<int64_t>(1, cores / group_->local_world())));
  at::manual_seed(static_cast<uint64_t>(config_.seed + group_->rank()));
  if (!options_.unsharded) check_same_settings(config_, *group_);
  load();
  evaluate(summary_.before, "before");
  Progress progress(config_.steps);
  for (int64_t number = 1; number <= config_.steps; ++number) {
    const StepMetrics metrics = step(number);
    summary_.losses.push_back(metrics.loss);
    summary_.step_ms.push_back(metrics.step_ms);
    if (!speaks()) continue;
    metrics_.step(metrics);
    progress.show(metrics);
  }
  evaluate(summary_.after, "after");
  finish();
}

void Training::load() {
  Sharding sharding(options_, config_, speaks());
  clip_norm_ = sharding.clip_norm();
  if (!options_.unsharded) sharding_ = std::move(sharding);
  torch::jit::setGraphExecutorOptimize(false);  // graphs as they are written, like those of a sharded module
  reset_peak_resident_bytes();
  summary_.start_rss_bytes = resident_bytes();
  module_ = load_module(config_, group_->device());
  check_number_of_inputs(module_, config_);
  module_.train();
  std::vector<at::Tensor> parameters = plain_parameters(module_);
  summary_.parameter_bytes = bytes_of(parameters);
  if (sharding_) {
    parameters.clear();
    sharding_->shard(module_, *group_);
    parameters = sharding_->parameters();
    ignored_ = others_of(plain_parameters(module_), parameters);
    parameters.insert(parameters.end(), ignored_.begin(), ignored_.end());
  }
  if (speaks()) std::printf("%s\n", plan_in_short().c_str());
  optimizer_ = make_optimizer(config_, std::move(parameters));
}

std::string Training::plan_in_short() const {
  const std::string parameters = format_bytes(summary_.parameter_bytes) + " of parameters";
  if (!sharding_) return "unsharded, on the batches of " + std::to_string(world_) + " rank(s): " + parameters;
  const ShardingCounters plan = sharding_->counters();
  return sharding_->strategy() + ": " + std::to_string(plan.units) + (plan.units == 1 ? " unit, " : " units, ") +
         parameters + ", " + format_bytes(plan.shard_bytes) + " at rest on a rank, at most " +
         format_bytes(plan.planned_peak_bytes) + " gathered beside it";
}

StepMetrics Training::step(int64_t number) {
  const auto start = std::chrono::steady_clock::now();
  const ShardingCounters before = sharding_ ? sharding_->counters() : ShardingCounters{};
  const int64_t first = options_.unsharded ? 0 : group_->rank();
  const int64_t last = options_.unsharded ? world_ : first + 1;
  const auto passes = static_cast<double>(config_.accumulate * (last - first));
  double loss = 0;
  for (int64_t micro = (number - 1) * config_.accumulate; micro < number * config_.accumulate; ++micro)
    for (int64_t rank = first; rank < last; ++rank)
      loss += pass(order_.slice((micro * world_ + rank) * config_.batch_size, config_.batch_size), 1 / passes);
  average_ignored_gradients();
  clip_gradients();
  optimizer_->step();
  optimizer_->zero_grad();
  const double ms = Milliseconds(std::chrono::steady_clock::now() - start).count();

  StepMetrics metrics{.step = number, .loss = loss / passes, .step_ms = ms};
  metrics.loss = group_->sum({metrics.loss}, "the loss of step " + std::to_string(number))[0] / group_->world();
  metrics.samples_per_s = static_cast<double>(world_ * config_.batch_size * config_.accumulate) * 1e3 / ms;
  if (sharding_) {
    const ShardingCounters after = sharding_->counters();
    metrics.all_gather_bytes = after.all_gather_bytes - before.all_gather_bytes;
    metrics.reduce_scatter_bytes = after.reduce_scatter_bytes - before.reduce_scatter_bytes;
  }
  return metrics;
}

void Training::average_ignored_gradients() {
  for (at::Tensor& parameter : ignored_) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameter);  // of this rank's samples none used it
    const at::Tensor own = gradient.to(at::kCPU, at::kDouble).contiguous();
    const std::vector<double> values(own.const_data_ptr<double>(), own.const_data_ptr<double>() + own.numel());
    const at::Tensor sum = at::tensor(group_->sum(values, "gradients of ignored_modules"), at::kDouble);
    gradient.copy_((sum / group_->world()).view(gradient.sizes()));
  }
}

void Training::clip_gradients() {
  if (sharding_) {
    sharding_->clip_gradients(ignored_);
  } else if (clip_norm_) {
    torch::nn::utils::clip_grad_norm_(optimizer_->param_groups().front().params(), *clip_norm_);
  }
}

double Training::pass(const std::vector<int64_t>& rows, double scale) {
  const Batch batch = data_.rows(rows, group_->device());
  const at::Tensor loss = compute_loss(config_, prediction_of(module_.forward(batch.inputs)), batch.target);
  (loss * scale).backward();
  return loss.item<double>();
}

void Training::evaluate(std::optional<Score>& score, const char* moment) {
  if (!held_out_) return;
  score = trainer::evaluate(module_, *held_out_, config_, *group_);
  if (speaks()) std::printf("held out, %s training: %s\n", moment, to_text(*score).c_str());
}

void Training::finish() {
  RankMemory mine{.shard_bytes = summary_.parameter_bytes,
                  .unsharded_peak_bytes = summary_.parameter_bytes,
                  .peak_rss_over_start_bytes = peak_resident_bytes() - summary_.start_rss_bytes};
  if (sharding_) {
    const ShardingCounters counters = sharding_->counters();
    mine.shard_bytes = counters.shard_bytes;
    mine.unsharded_peak_bytes = counters.unsharded_peak_bytes;
  }
  for (const auto& row : group_->gather({mine.shard_bytes, mine.unsharded_peak_bytes, mine.peak_rss_over_start_bytes},
                                        "the memory of each rank"))
    summary_.memory.push_back({row[0], row[1], row[2]});
  summary_.ranks = world_;
  summary_.sharded = sharding_.has_value();

  if (!options_.save.empty()) {
    if (sharding_) sharding_->detach();
    if (speaks()) {
      save(module_, options_.save);
      summary_.saved_as = options_.save;
      if (held_out_) summary_.predictions = predict(module_, *held_out_, config_, group_->device());
    }
  }
  if (speaks()) {
    metrics_.summary(to_json(summary_));
    std::printf("%s", to_text(summary_).c_str());
    std::fflush(stdout);
  }
  group_->barrier("the end of the run");  // rank 0 keeps the store: it leaves last
}

}  // namespace trainer
