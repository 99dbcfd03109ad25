// A sharded module and TorchScript files: today's weights into a plain file, and a file's weights into the shards,
// while the module stays sharded.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "plugin/checkpoint/module_archive.hpp"
#include "plugin/checkpoint/module_rewrite.hpp"
#include "plugin/engine/exception_text.hpp"
#include "plugin/engine/rank_values.hpp"
#include "plugin/sharded_module.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// A fault of one rank is one of all.
class TogetherOrNot {
 public:
  TogetherOrNot(Communicator& communicator, c10::Device device, std::string what)
      : communicator_(communicator), device_(device), what_(std::move(what)) {}

  /// Does nothing after a fault; what `action` throws is kept for agree().
  template <typename Action>
  void run(const Action& action) {
    if (fault_) return;
    try {
      action();
    } catch (const Error& error) {
      fault_ = error;
    } catch (const std::exception& error) {
      fault_ = Error(ErrorCode::kInternal, exception_text(error));
    }
  }
  /// Throws on every rank where one has a fault: its own there, elsewhere one that names the rank. Collective.
  void agree() {
    if (communicator_.size() > 1) {
      const auto faults = all_gather_values<int64_t>(communicator_, what_, {fault_ ? 1 : 0}, device_);
      for (size_t rank = 0; rank < faults.size() && !fault_; ++rank) {
        if (faults[rank] == 0) continue;
        throw Error(ErrorCode::kFailedPrecondition,
                    "rank " + std::to_string(rank) + " could not " + what_ + "; its own error says why",
                    {.rank = static_cast<int64_t>(rank)});
      }
    }
    if (fault_) throw Error(*fault_);
  }

 private:
  Communicator& communicator_;
  c10::Device device_;
  std::string what_;
  std::optional<Error> fault_;
};

c10::Device device_of(const std::vector<ShardGeometry>& parts) {
  return parts.empty() ? c10::Device(c10::kCPU) : parts.front().shard.device();
}

bool has_elements(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0;
}

}  // namespace

std::vector<NamedTensor> ShardedModule::whole_tensors() const {
  const torch::jit::Module module(objects_.front());
  std::vector<NamedTensor> tensors;
  for (const auto& buffer : module.named_buffers()) tensors.push_back({buffer.name, buffer.value});
  const std::vector<std::string>& ignored = plan().ignored_parameters;
  if (ignored.empty()) return tensors;
  for (const auto& parameter : module.named_parameters()) {
    const bool is_ignored = std::find(ignored.begin(), ignored.end(), parameter.name) != ignored.end();
    if (is_ignored) tensors.push_back({parameter.name, parameter.value});
  }
  return tensors;
}

void ShardedModule::export_to(const std::string& source, const std::string& target) {
  require_rest("export");
  const std::vector<ShardGeometry> parts = geometry();
  TogetherOrNot ranks(communicator(), device_of(parts), "export the module");
  std::unique_ptr<ModuleRewrite> rewrite;  // on rank 0
  if (communicator().rank() == 0) {
    ranks.run([&] {
      rewrite = std::make_unique<ModuleRewrite>(source, target);
      for (const ShardGeometry& part : parts) rewrite->require(part.name, part.shape, part.shard.scalar_type());
      for (const auto& [name, tensor] : whole_tensors()) {
        if (has_elements(tensor)) rewrite->replace(name, tensor);
      }
    });
  }
  ranks.agree();
  for (const ShardGeometry& part : parts) {
    const at::Tensor full = gather_tensor(part.name, part.shard, /*only_rank=*/0);
    if (rewrite && has_elements(full)) ranks.run([&] { rewrite->replace(part.name, full); });
  }
  if (rewrite) ranks.run([&] { rewrite->finish(); });
  ranks.agree();
}

void ShardedModule::load_from(const std::string& source) {
  require_rest("load");
  const std::vector<ShardGeometry> parts = geometry();
  TogetherOrNot ranks(communicator(), device_of(parts), "load the weights");
  std::unique_ptr<ModuleArchive> archive;
  ranks.run([&] {
    archive = std::make_unique<ModuleArchive>(source);
    for (const ShardGeometry& part : parts) archive->require(part.name, part.shape, part.shard.scalar_type());
    for (const auto& [name, tensor] : whole_tensors()) {
      if (has_elements(tensor)) archive->require(name, tensor.sizes(), tensor.scalar_type());
    }
  });
  ranks.agree();
  const at::NoGradGuard no_grad;
  for (const ShardGeometry& part : parts) {
    if (!has_elements(part.shard)) continue;
    part.shard.view({-1}).copy_(archive->elements(part.name, part.range.begin, part.range.end));
  }
  for (const auto& [name, tensor] : whole_tensors()) {
    if (has_elements(tensor)) tensor.copy_(archive->elements(name, 0, tensor.numel()).view(tensor.sizes()));
  }
  mark_written();
  note_own_change();
}

}  // namespace fsdp2
