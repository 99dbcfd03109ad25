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
  int64_t bytes;        // of the larger tensor
  std::string purpose;  // as it was announced: "unit `layers.0`"
  int64_t ranks;        // of the group
};

class RecordingCommunicator final : public Communicator {
 public:
  explicit RecordingCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int64_t rank() const override { return inner_->rank(); }
  [[nodiscard]] int64_t size() const override { return inner_->size(); }
  [[nodiscard]] int64_t world_rank() const override { return inner_->world_rank(); }
  [[nodiscard]] std::string name() const override { return inner_->name(); }

  void announce(std::string_view purpose) override {
    purpose_ = purpose;
    inner_->announce(purpose);
  }
  [[nodiscard]] std::string whereabouts(const std::string& own) noexcept override { return inner_->whereabouts(own); }
  std::unique_ptr<Request> all_gather(at::Tensor output, at::Tensor input) override {
    note(Collective::kAllGather, output);
    return inner_->all_gather(output, input);
  }
  std::unique_ptr<Request> reduce_scatter(at::Tensor output, at::Tensor input, double divisor) override {
    note(Collective::kReduceScatter, input);
    return inner_->reduce_scatter(output, input, divisor);
  }
  std::unique_ptr<Request> all_reduce(at::Tensor tensor, double divisor) override {
    note(Collective::kAllReduce, tensor);
    return inner_->all_reduce(tensor, divisor);
  }
  std::unique_ptr<Request> broadcast(at::Tensor tensor) override { return inner_->broadcast(tensor); }
  /// Its collectives are noted here, too.
  std::shared_ptr<Communicator> split(const std::vector<int64_t>& members) override {
    auto group = std::make_shared<RecordingCommunicator>(inner_->split(members));
    group->log_ = log_;
    return group;
  }

  [[nodiscard]] int64_t count(Collective kind) const {
    int64_t result = 0;
    for (const CollectiveRecord& record : log_->records) result += record.kind == kind ? 1 : 0;
    return result;
  }
  [[nodiscard]] int64_t bytes(Collective kind) const {
    int64_t result = 0;
    for (const CollectiveRecord& record : log_->records) result += record.kind == kind ? record.bytes : 0;
    return result;
  }
  [[nodiscard]] const std::vector<CollectiveRecord>& records() const { return log_->records; }
  void forget() { log_->records.clear(); }

  /// `act` is called before each collective with the number of those noted before it.
  void before(std::function<void(Collective, size_t)> act) { log_->before = std::move(act); }

 private:
  void note(Collective kind, const at::Tensor& larger) {
    if (log_->before) log_->before(kind, log_->records.size());
    log_->records.push_back({kind, static_cast<int64_t>(larger.nbytes()), purpose_, size()});
  }

  struct Log {
    std::vector<CollectiveRecord> records;
    std::function<void(Collective, size_t)> before;
  };
  std::shared_ptr<Communicator> inner_;
  std::string purpose_;
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
};

}  // namespace fsdp2::testing
