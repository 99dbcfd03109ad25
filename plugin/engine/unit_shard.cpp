// Cutting a unit: from the tensors that a module holds to this rank's shards of them.
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "plugin/engine/dtype.hpp"
#include "plugin/engine/planted_fault.hpp"
#include "plugin/engine/unit.hpp"

namespace fsdp2 {
namespace {

// Graphs may keep the tensor longer than its unit, so the unit takes it off again.
struct AccumulatedHook : torch::autograd::PostAccumulateGradHook {
  Unit* unit;
  size_t parameter;

  AccumulatedHook(Unit* owner, size_t index) : unit(owner), parameter(index) {}
  void operator()(const at::Tensor& /*tensor*/) override { unit->gradient_accumulated(parameter); }
};

}  // namespace

Unit::Unit(std::shared_ptr<Runtime> runtime, const PlannedUnit& plan, std::vector<ParameterHome> homes,
           WrapMeter& meter)
    : runtime_(std::move(runtime)),
      path_(plan.path),
      reshard_after_forward_(plan.reshard_after_forward),
      block_(plan.reshard_to > 0 ? runtime_->blocks.at(plan.reshard_to) : nullptr),
      inputs_cast_(to_torch(plan.inputs_cast)),
      outputs_cast_(to_torch(plan.outputs_cast)),
      gradient_divisor_(runtime_->gradient_divisor),
      is_root_(!plan.parent) {
  c10::InferenceMode normal(false);
  at::NoGradGuard no_grad;
  if (!plan.parameters.empty()) {
    const c10::Device device = homes.front().tensor().device();
    for (size_t b = 0; b < plan.buffers.size(); ++b) {
      buffers_.emplace_back(device, plan, b, runtime_->mesh.shard, runtime_->gathers);
      reduced_dtypes_.push_back(to_torch(plan.buffers[b].reduced));
      if (planted_fault("wrong dtype of sums")) reduced_dtypes_.back() = buffers_.back().whole().scalar_type();
      meter.add(static_cast<int64_t>(buffers_.back().shard().nbytes()));
    }
  }
  partial_sums_.resize(buffers_.size());
  for (size_t i = 0; i < plan.parameters.size(); ++i) cut(plan, plan.parameters[i], std::move(homes[i]), meter);
}

Unit::~Unit() {
  if (in_flight_) give_up(std::move(*in_flight_));
  drop_hooks();
}

void Unit::drop_hooks() {
  for (const UnitParameter& p : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(p.unsharded, nullptr);
}

void Unit::cut(const PlannedUnit& plan, const PlannedParameter& planned, ParameterHome home, WrapMeter& meter) {
  const int64_t shard_rank = runtime_->communicator->rank() % runtime_->mesh.shard;
  const ShardRange range = shard_range(plan, planned, shard_rank);
  const FlatBuffer& buffer = buffers_[planned.buffer];

  at::Tensor original = home.tensor();
  const bool trainable = original.requires_grad();
  UnitParameter p;
  p.name = planned.name;
  p.buffer = planned.buffer;
  p.shape = planned.shape;
  p.offset = planned.offset;
  p.chunk = planned.chunk.value_or(PlannedChunk{});
  p.shard_offset = shard_offset(plan, planned, shard_rank);
  p.shard_begin = range.begin;
  p.shard_shape = shard_shape(planned, range);
  p.shard = FlatBuffer::alias(buffer.shard(), p.shard_offset, p.shard_shape);
  if (range.end > range.begin) {
    p.shard.view(-1).copy_(original.detach().view(-1).slice(0, range.begin, range.end));
  }
  p.unsharded = FlatBuffer::alias(buffer.whole(), p.offset, p.shape).set_requires_grad(trainable);
  torch::autograd::impl::set_post_acc_grad_hooks(p.unsharded,
                                                 std::make_unique<AccumulatedHook>(this, parameters_.size()));
  const auto bytes = static_cast<int64_t>(original.nbytes());
  bool held = false;
  if (home.host.defined()) {
    held = original.storage().use_count() > 1;
    p.host = HostTensor(original, p.shard);
    p.shard = original;
  } else {
    p.shard.set_requires_grad(trainable);
    for (const Slot& slot : home.slots) slot.put(p.shard);
    p.slots = std::move(home.slots);
    held = original.use_count() > 1 || original.storage().use_count() > 1;
  }
  p.version = p.shard._version();
  if (held) held_elsewhere_.push_back(p.name);
  meter.add(-bytes);
  parameters_.push_back(std::move(p));
}

}  // namespace fsdp2
