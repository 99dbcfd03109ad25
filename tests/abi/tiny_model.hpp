// A scripted module made without Python, saved and loaded again as a host would get it.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <memory>
#include <sstream>
#include <string>

namespace fsdp2::testing {

/// Values that need no random generator.
inline at::Tensor fill(at::IntArrayRef shape, int64_t s) {
  const at::Tensor k = at::arange(c10::multiply_integers(shape), at::kLong);
  return ((7 * k + s).remainder(13) - 6).to(at::kDouble).mul(0.05).to(at::kFloat).reshape(shape);
}

/// Two linear layers with a tanh between, 16 -> 24 -> 4; submodules `inner` and `outer`.
inline torch::jit::Module tiny_model() {
  const auto classes = std::make_shared<torch::jit::CompilationUnit>();
  const auto linear = [&](const std::string& name, int64_t from, int64_t to, int64_t s) {
    torch::jit::Module module("__torch__." + name, classes);
    module.register_parameter("weight", fill({to, from}, s).requires_grad_(), false);
    module.register_parameter("bias", fill({to}, s + 1).requires_grad_(), false);
    module.define("def forward(self, x):\n    return torch.matmul(x, self.weight.t()) + self.bias\n");
    return module;
  };
  torch::jit::Module model("__torch__.Tiny", classes);
  model.register_module("inner", linear("Inner", 16, 24, 1));
  model.register_module("outer", linear("Outer", 24, 4, 3));
  model.define("def forward(self, x):\n    return self.outer.forward(torch.tanh(self.inner.forward(x)))\n");
  std::stringstream file;
  model.save(file);
  return torch::jit::load(file);
}

}  // namespace fsdp2::testing
