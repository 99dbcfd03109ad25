// The precompiled header: the LibTorch headers that most files need, and nothing of our own (a change there would
// rebuild all). Not <torch/torch.h>: compilers instantiate its templates again in every file, 16 s for an empty one.
#pragma once
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>
