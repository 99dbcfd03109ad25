// A communicator that notes every collective before it passes it on: an account that does not rely on the engine's own.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/engine/communicator.hpp"

namespace fsdp2::testing {

enum class Collective { kAllGather, kReduceScatter, kAllReduce };

struct CollectiveRecord {
  Collective kind;
  int64_t bytes;                   // of the larger tensor
  std::string purpose;             // as it was announced: "unit `layers.0`"
  int64_t ranks;                   // of the group
  size_t ended_before = SIZE_MAX;  // the first record that was noted after the wait for it
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
    return noted(Collective::kAllGather, output, [&] { return inner_->all_gather(output, input); });
  }
  std::unique_ptr<Request> reduce_scatter(at::Tensor output, at::Tensor input, double divisor) override {
    return noted(Collective::kReduceScatter, input, [&] { return inner_->reduce_scatter(output, input, divisor); });
  }
  std::unique_ptr<Request> all_reduce(at::Tensor tensor, double divisor) override {
    return noted(Collective::kAllReduce, tensor, [&] { return inner_->all_reduce(tensor, divisor); });
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
  void forget() {
    log_->records.clear();
    ++log_->generation;
  }

  /// `act` is called before each collective with the number of those noted before it.
  void before(std::function<void(Collective, size_t)> act) { log_->before = std::move(act); }

 private:
  struct Log {
    std::vector<CollectiveRecord> records;
    std::function<void(Collective, size_t)> before;
    int generation = 0;
  };

  class NotedRequest final : public Request {
   public:
    NotedRequest(std::unique_ptr<Request> inner, std::shared_ptr<Log> log)
        : inner_(std::move(inner)),
          log_(std::move(log)),
          generation_(log_->generation),
          place_(log_->records.size() - 1) {}
    void wait() override {
      inner_->wait();
      if (log_->generation == generation_) log_->records[place_].ended_before = log_->records.size();
    }

   private:
    std::unique_ptr<Request> inner_;
    std::shared_ptr<Log> log_;
    int generation_;
    size_t place_;
  };

  std::unique_ptr<Request> noted(Collective kind, const at::Tensor& larger,
                                 const std::function<std::unique_ptr<Request>()>& start) {
    if (log_->before) log_->before(kind, log_->records.size());
    log_->records.push_back({kind, static_cast<int64_t>(larger.nbytes()), purpose_, size()});
    return std::make_unique<NotedRequest>(start(), log_);
  }

  std::shared_ptr<Communicator> inner_;
  std::string purpose_;
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
};

}  // namespace fsdp2::testing
