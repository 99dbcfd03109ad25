#include "plugin/engine/unit_call.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "plugin/engine/tensor_walk.hpp"

namespace fsdp2 {
namespace {

namespace autograd = torch::autograd;

// Identity on the gradients of a call's inputs: when they are ready, the unit's part of backward is over.
struct PostBackwardNode : autograd::Node {
  std::shared_ptr<RecordedCall> call;

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    call->unit->post_backward(*call);
    return std::move(gradients);
  }
  std::string name() const override { return "Fsdp2PostBackward"; }
};

// Sits on the nodes behind a call's outputs, not on the output tensors: a hook on a tensor is lost when the caller
// changes the tensor in place.
struct PreBackwardHook : autograd::FunctionPreHook {
  std::shared_ptr<RecordedCall> call;

  explicit PreBackwardHook(std::shared_ptr<RecordedCall> recorded) : call(std::move(recorded)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    call->unit->pre_backward(call);
    return gradients;
  }
};

bool contains(std::span<const int64_t> positions, size_t i) {
  return std::find(positions.begin(), positions.end(), static_cast<int64_t>(i)) != positions.end();
}

}  // namespace

UnitCall::UnitCall(std::shared_ptr<Unit> unit) : unit_(std::move(unit)) {
  unit_->open();
  open_ = true;
}

UnitCall::~UnitCall() {
  if (!open_) return;
  try {
    unit_->close();
  } catch (const std::exception&) {  // a gather ahead has failed, too: the fault that ended the call counts
  }
}

c10::IValue UnitCall::begin(c10::IValue inputs, std::span<const int64_t> written) {
  const auto& given = inputs.toTupleRef().elements();
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].isTensor() && (contains(written, i) || given[i].isObject())) shared_.push_back(given[i]);
  }
  if (unit_->inputs_cast()) {
    std::vector<c10::IValue> elements;
    for (size_t i = 0; i < given.size(); ++i) elements.push_back(cast_input(given[i], contains(written, i)));
    inputs = c10::ivalue::Tuple::create(std::move(elements));
  }
  return at::GradMode::is_enabled() ? thread_inputs(std::move(inputs), written) : inputs;
}

// Inside autograd: the gradient comes back in the caller's dtype.
c10::IValue UnitCall::cast_input(const c10::IValue& input, bool written) {
  const at::ScalarType dtype = *unit_->inputs_cast();
  const auto cast = [&](const at::Tensor& t) -> at::Tensor {
    if (!t.is_floating_point() || t.scalar_type() == dtype) return t;
    // A tensor that is given twice stays one tensor.
    const auto known = std::find_if(casts_.begin(), casts_.end(), [&](const auto& c) { return c.given.is_same(t); });
    if (known != casts_.end()) {
      known->written |= written;
      return known->cast;
    }
    const at::Tensor copy = t.to(dtype);
    casts_.push_back({t, copy, written, copy.is_inference() ? 0 : copy._version()});
    return copy;
  };
  if (input.isObject()) return input;
  // The call must find the caller's own list or dict where it writes to it; release() puts the caller's tensors back.
  if (written && !input.isTensor()) replace_tensors_inside(input, cast);
  return replace_tensors(input, cast);
}

c10::IValue UnitCall::thread_inputs(c10::IValue inputs, std::span<const int64_t> written) {
  const auto is_written = [&](size_t i) { return contains(written, i); };
  const auto& given = inputs.toTupleRef().elements();
  recorded_ = std::make_shared<RecordedCall>(RecordedCall{unit_});
  auto node = std::make_shared<PostBackwardNode>();
  node->call = recorded_;
  input_node_ = node.get();
  for (const int64_t i : written) {
    const c10::IValue& input = given[static_cast<size_t>(i)];
    if (!input.isTensor() || !input.toTensor().defined() || input.toTensor().is_inference()) continue;
    written_.push_back({input.toTensor(), input.toTensor()._version()});
  }

  // A changed input can be threaded and handed back afterwards where that is what autograd would have done to it: not
  // leaves (autograd must refuse the change), not views (their base changes too), not tensors inside containers.
  const auto threads = [&](const c10::IValue& input, size_t i) {
    if (!is_written(i)) return true;
    return input.isTensor() && input.toTensor().defined() && input.toTensor().grad_fn() && !input.toTensor().is_view();
  };

  // A tensor that is given twice stays one tensor: a change through one name shows under the other.
  const auto find = [&](const at::Tensor& t) {
    return std::find_if(threaded_.begin(), threaded_.end(), [&](const auto& known) { return known.given.is_same(t); });
  };
  std::vector<c10::IValue> elements(given.begin(), given.end());
  autograd::edge_list edges;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!threads(elements[i], i)) continue;
    for_each_tensor(elements[i], [&](const at::Tensor& t) {
      if (!t.requires_grad()) return;
      if (auto known = find(t); known != threaded_.end()) {
        known->written |= is_written(i);
        return;
      }
      edges.push_back(autograd::impl::gradient_edge(t));
      threaded_.push_back({t, t.detach(), is_written(i)});
    });
  }
  if (edges.empty()) return inputs;
  node->set_next_edges(std::move(edges));
  for (const ThreadedInput& input : threaded_) autograd::set_history(input.threaded, node);
  recorded_->threads_inputs = true;

  for (size_t i = 0; i < elements.size(); ++i) {
    if (!threads(elements[i], i)) continue;
    elements[i] = replace_tensors(elements[i], [&](const at::Tensor& t) -> at::Tensor {
      const auto known = find(t);
      return known == threaded_.end() ? t : known->threaded;
    });
  }
  return c10::ivalue::Tuple::create(std::move(elements));
}

void UnitCall::hand_back_written_inputs() {
  for (const ThreadedInput& input : threaded_) {
    // Same memory and version counter, but the history of the change is on our tensor only.
    if (!input.written || input.threaded.grad_fn().get() == input_node_) continue;
    autograd::impl::set_gradient_edge(input.given, autograd::impl::gradient_edge(input.threaded));
  }
  for (const CastInput& input : casts_) {
    // Into a leaf that needs a gradient autograd would refuse to write, so nobody can count on it.
    const bool may_be_read = input.written && !(input.given.is_leaf() && input.given.requires_grad());
    // An inference tensor counts no versions: it may have been changed.
    const bool changed = may_be_read && (input.cast.is_inference() || input.cast._version() != input.version);
    if (changed) at::Tensor(input.given).copy_(input.cast);
  }
}

// Nobody outside may hold what is about to be freed, nor the tensors that stand for the inputs.
void UnitCall::release(c10::IValue& outputs) {
  const auto released = [&](const at::Tensor& t) -> at::Tensor {
    for (const ThreadedInput& input : threaded_) {
      if (input.threaded.is_same(t)) return input.given;
    }
    return unit_->owns_memory_of(t) ? t.clone() : t;
  };
  const auto given_again = [&](const at::Tensor& t) -> at::Tensor {
    const at::Tensor own = released(t);
    for (const CastInput& input : casts_) {
      if (input.cast.is_same(own)) return input.given;
    }
    return own;
  };
  replace_tensors_inside(outputs, released);
  outputs = replace_tensors(outputs, released);
  for (const c10::IValue& value : shared_) replace_tensors_inside(value, given_again);
  for (const Slot& slot : unit_->written_attributes()) {
    replace_tensors_inside(slot.value(), released);  // first: a list stays the same object
    slot.object->setSlot(slot.index, replace_tensors(slot.value(), released));
  }
}

void UnitCall::hook_pre_backward(const c10::IValue& outputs) {
  std::vector<autograd::Node*> hooked;
  const auto hook = [&](const at::Tensor& t) {
    autograd::Node* node = t.grad_fn().get();
    // An input that is handed on does not need the unit's parameters.
    const bool handed_on = std::any_of(threaded_.begin(), threaded_.end(), [&](const ThreadedInput& input) {
      return !input.written && input.given.grad_fn().get() == node;
    });
    if (node == nullptr || node == input_node_ || handed_on) return;
    if (std::find(hooked.begin(), hooked.end(), node) != hooked.end()) return;
    hooked.push_back(node);
    node->add_pre_hook(std::make_unique<PreBackwardHook>(recorded_));
  };
  const auto hook_all = [&](const c10::IValue& value) {
    for_each_tensor(
        value,
        [&](const at::Tensor& t) {
          if (!t.requires_grad()) return;
          hook(t);
          // A view changed in place gets a new node; that of its base stays.
          if (t.is_view()) hook(at::Tensor(t._base()));
        },
        Objects::kEnter);
  };
  hook_all(outputs);
  for (const WrittenInput& input : written_) {
    if (input.given._version() != input.version) hook_all(input.given);
  }
  for (const c10::IValue& value : shared_) hook_all(value);
  for (const Slot& slot : unit_->written_attributes()) hook_all(slot.value());
  if (!hooked.empty()) unit_->note_recorded(*recorded_);  // else backward never comes to it
}

c10::IValue UnitCall::end(c10::IValue outputs) {
  if (outputs.isFuture()) {
    outputs.toFuture()->wait();  // while there are parameters
    throw Error(ErrorCode::kUnsupported,
                unit_->title() +
                    " returns a future of torch.jit.fork, which would go on without its parameters; wait " +
                    "for it inside the unit",
                {.module = unit_->path()});
  }
  unit_->check_unchanged();
  hand_back_written_inputs();
  release(outputs);
  if (recorded_) hook_pre_backward(outputs);
  open_ = false;
  unit_->close();
  const auto dtype = unit_->outputs_cast();
  if (!dtype) return outputs;
  return replace_tensors(outputs, [&](const at::Tensor& t) { return t.is_floating_point() ? t.to(*dtype) : t; });
}

}  // namespace fsdp2
