// A communicator that notes every collective before it passes it on: an account that does not rely on the engine's own.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/engine/communicator.hpp"

namespace fsdp2::testing {

enum class Collective { kAllGather, kReduceScatter, kAllReduce };

struct CollectiveRecord {
  Collective kind;
  int64_t bytes;  // of the larger tensor
};

class RecordingCommunicator final : public Communicator {
 public:
  explicit RecordingCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int64_t rank() const override { return inner_->rank(); }
  [[nodiscard]] int64_t size() const override { return inner_->size(); }
  [[nodiscard]] std::string name() const override { return inner_->name(); }

  void announce(std::string_view purpose) override { inner_->announce(purpose); }
  [[nodiscard]] std::string whereabouts(const std::string& own) noexcept override { return inner_->whereabouts(own); }
  std::unique_ptr<Request> all_gather(at::Tensor output, at::Tensor input) override {
    note(Collective::kAllGather, output);
    return inner_->all_gather(output, input);
  }
  std::unique_ptr<Request> reduce_scatter_mean(at::Tensor output, at::Tensor input) override {
    note(Collective::kReduceScatter, input);
    return inner_->reduce_scatter_mean(output, input);
  }
  std::unique_ptr<Request> all_reduce_mean(at::Tensor tensor) override {
    note(Collective::kAllReduce, tensor);
    return inner_->all_reduce_mean(tensor);
  }

  [[nodiscard]] int64_t count(Collective kind) const {
    int64_t result = 0;
    for (const CollectiveRecord& record : records_) result += record.kind == kind ? 1 : 0;
    return result;
  }
  [[nodiscard]] int64_t bytes(Collective kind) const {
    int64_t result = 0;
    for (const CollectiveRecord& record : records_) result += record.kind == kind ? record.bytes : 0;
    return result;
  }
  [[nodiscard]] const std::vector<CollectiveRecord>& records() const { return records_; }
  void forget() { records_.clear(); }

  /// Called before each collective with the number of those noted before it.
  std::function<void(Collective, size_t)> before;

 private:
  void note(Collective kind, const at::Tensor& larger) {
    if (before) before(kind, records_.size());
    records_.push_back({kind, static_cast<int64_t>(larger.nbytes())});
  }

  std::shared_ptr<Communicator> inner_;
  std::vector<CollectiveRecord> records_;
};

}  // namespace fsdp2::testing
