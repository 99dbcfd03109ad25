// One call of a unit: what happens to its inputs and outputs so that backward comes back to the unit.
#pragma once
#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugin/engine/unit.hpp"

namespace fsdp2 {

/// Opened before the call's first operation and closed after its last. Travels through the TorchScript graph as a
/// value: when the call throws, the interpreter drops it and the destructor puts the unit back to rest.
class UnitCall : public torch::CustomClassHolder {
 public:
  /// Opens the unit (collective).
  explicit UnitCall(std::shared_ptr<Unit> unit);
  ~UnitCall() override;
  UnitCall(const UnitCall&) = delete;
  UnitCall& operator=(const UnitCall&) = delete;

  /// `inputs` is the tuple of the call's inputs; returns the tuple to compute with. Floating tensors in them are cast
  /// where the unit says so. Inputs that need gradients go through a node whose backward is the unit's post-backward.
  /// `written` lists the positions of inputs that the call may change in place.
  c10::IValue begin(c10::IValue inputs, std::span<const int64_t> written);

  /// Hooks the unit's pre-backward to the nodes behind `outputs`, and behind what leaves through attributes that the
  /// unit writes, through inputs that it has changed and through containers that it was given; closes the unit. Returns
  /// the outputs for the caller: the caller's own tensor where an input comes back, a copy where an output lies in the
  /// unit's memory, cast where the unit says so.
  c10::IValue end(c10::IValue outputs);

 private:
  struct ThreadedInput {
    at::Tensor given;     // the caller's tensor
    at::Tensor threaded;  // what the call computes with; shares memory and version counter with it
    bool written;         // the call may change it in place
  };

  struct CastInput {
    at::Tensor given;
    at::Tensor cast;
    bool written;
    int64_t version;  // of `cast`
  };

  struct WrittenInput {
    at::Tensor given;
    int64_t version;  // before the call
  };

  [[nodiscard]] c10::IValue cast_input(const c10::IValue& input, bool written);
  [[nodiscard]] c10::IValue thread_inputs(c10::IValue inputs, std::span<const int64_t> written);
  void hand_back_written_inputs();
  void release(c10::IValue& outputs);
  void hook_pre_backward(const c10::IValue& outputs);

  std::shared_ptr<Unit> unit_;
  std::shared_ptr<RecordedCall> recorded_;
  torch::autograd::Node* input_node_ = nullptr;  // kept alive by the graph where it matters; only compared
  std::vector<CastInput> casts_;
  std::vector<ThreadedInput> threaded_;
  std::vector<WrittenInput> written_;  // inputs through which results may leave that are no outputs
  std::vector<c10::IValue> shared_;    // inputs through which the call can hand out tensors: lists, dicts, objects
  bool open_ = false;
};

}  // namespace fsdp2
