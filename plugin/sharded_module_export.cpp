// Writing a sharded module as a plain TorchScript file while training goes on.
#include <memory>
#include <optional>
#include <set>

#include "plugin/checkpoint/module_rewrite.hpp"
#include "plugin/engine/rank_values.hpp"
#include "plugin/sharded_module.hpp"
#include "registry/error.hpp"

namespace fsdp2 {
namespace {

/// Runs on rank 0 alone; what it throws is kept until all ranks know of it.
class OnRank0 {
 public:
  OnRank0(Communicator& communicator, c10::Device device) : communicator_(communicator), device_(device) {}

  [[nodiscard]] bool is_here() const { return communicator_.rank() == 0; }
  template <typename Action>
  void run(const Action& action) {
    if (!is_here() || fault_) return;
    try {
      action();
    } catch (const Error& error) {
      fault_ = error;
    } catch (const std::exception& error) {
      fault_ = Error(ErrorCode::kInternal, error.what());
    }
  }
  /// Throws on every rank where rank 0 has a fault. Collective.
  void agree() {
    if (communicator_.size() > 1) {
      communicator_.announce("export");
      const auto faults = all_gather_values<int64_t>(communicator_, {fault_ ? 1 : 0}, device_);
      if (!is_here() && faults[0] != 0) {
        throw Error(ErrorCode::kFailedPrecondition, "rank 0 could not export the module; its own error says why",
                    {.rank = 0});
      }
    }
    if (fault_) throw Error(*fault_);
  }

 private:
  Communicator& communicator_;
  c10::Device device_;
  std::optional<Error> fault_;
};

}  // namespace

void ShardedModule::export_to(const std::string& source, const std::string& target) {
  const std::vector<ShardGeometry> parts = geometry();
  const c10::Device device = parts.empty() ? c10::Device(c10::kCPU) : parts.front().shard.device();
  require_rest("export");
  OnRank0 writer(communicator(), device);
  std::unique_ptr<ModuleRewrite> rewrite;
  writer.run([&] {
    rewrite = std::make_unique<ModuleRewrite>(source, target);
    for (const ShardGeometry& part : parts) rewrite->require(part.name, part.shape);
    const torch::jit::Module module(objects_.front());
    for (const auto& buffer : module.named_buffers()) {
      if (buffer.value.defined() && buffer.value.numel() > 0) rewrite->replace(buffer.name, buffer.value);
    }
  });
  writer.agree();
  for (const ShardGeometry& part : parts) {
    const at::Tensor full = gather_tensor(part.name, part.shard, /*only_rank=*/0);
    writer.run([&] {
      if (full.numel() > 0) rewrite->replace(part.name, full);
    });
  }
  writer.run([&] { rewrite->finish(); });
  writer.agree();
}

}  // namespace fsdp2
